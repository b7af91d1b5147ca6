package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Interval of status checks, and time without a response after which the runtime counts as down. A
// kubelet uses the same values.
const (
	statusInterval = 5 * time.Second
	downAfter      = 30 * time.Second
)

// errDown and errEarly have the texts of a kubelet.
var (
	errDown  = errors.New("container runtime is down")
	errEarly = errors.New("container runtime status check may not have completed yet")
)

// A state is the last reported status of the runtime.
type state struct {
	isAnswering bool      // whether the last status check succeeded
	at          time.Time // time of the last successful check, or zero
	runtime     error     // why the runtime is not ready, in the text of a kubelet; nil if it is ready
	network     error     // why the network is not ready; nil if it is ready

	strictGroups, mountOptions bool // features of the runtime
}

// equalsState reports whether two states are equal except for their times.
func (s state) equalsState(o state) bool {
	return s.isAnswering == o.isAnswering && errorText(s.runtime) == errorText(o.runtime) && errorText(s.network) == errorText(o.network) &&
		s.strictGroups == o.strictGroups && s.mountOptions == o.mountOptions
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Run checks the status of the runtime when the connection is established or lost, and every
// statusInterval, until ctx ends.
func (r *Runtime) Run(ctx context.Context) error {
	connection := make(chan struct{})
	go func() {
		for ctx.Err() == nil {
			r.AwaitChange(ctx)
			select {
			case connection <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}()
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	down := time.NewTimer(downAfter) // fires after downAfter without a successful check
	defer down.Stop()
	for {
		if r.CheckStatus(ctx) {
			down.Reset(downAfter)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-down.C:
			r.c.Log.Error("the container runtime does not respond: running pods continue to run, and no pods are started",
				"endpoint", r.c.Endpoint)
			r.c.Changed()
		case <-connection:
		case <-tick.C:
		}
	}
}

// CheckStatus checks the status of the runtime and reports whether the runtime responded.
func (r *Runtime) CheckStatus(ctx context.Context) bool {
	bounded, stop := context.WithTimeout(ctx, downAfter)
	defer stop()
	resp, err := r.Status(bounded, &api.StatusRequest{})
	if ctx.Err() != nil {
		return false
	}
	r.mu.Lock()
	before := r.state
	now := before
	now.isAnswering = err == nil
	if err == nil {
		now.at = time.Now()
		now.strictGroups, now.mountOptions = resp.GetFeatures().GetSupplementalGroupsPolicy(), resp.GetFeatures().GetMountOptions()
		now.runtime, now.network = readConditions(resp.GetStatus())
	}
	r.state = now
	changed := !now.equalsState(before)
	if changed {
		close(r.stateChanged)
		r.stateChanged = make(chan struct{})
	}
	r.mu.Unlock()
	if !changed {
		return err == nil
	}
	switch {
	case err != nil:
		r.c.Log.Warn("the container runtime does not respond", "endpoint", r.c.Endpoint, "error", err)
	case !before.isAnswering:
		r.c.Log.Info("the container runtime responds", "endpoint", r.c.Endpoint)
	}
	if err == nil { // for a failure, Run calls Changed after downAfter
		r.c.Changed()
	}
	return err == nil
}

// Features returns the features that a runtime has last reported, of those that a pod may need. It has none before its first response.
func Features(r *Runtime) *api.RuntimeFeatures {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &api.RuntimeFeatures{SupplementalGroupsPolicy: r.state.strictGroups, MountOptions: r.state.mountOptions}
}

// readConditions returns why the runtime and its network are not ready, or nil.
func readConditions(s *api.RuntimeStatus) (runtime, network error) {
	check := func(kind, what string) error {
		for _, c := range s.GetConditions() {
			if c.Type != kind {
				continue
			}
			if c.Status {
				return nil
			}
			return fmt.Errorf("%s not ready: %s=false reason:%s message:%s", what, kind, truncateText(c.Reason), truncateText(c.Message))
		}
		return fmt.Errorf("%s not ready: the runtime reports no condition %s", what, kind)
	}
	return check(api.RuntimeReady, "container runtime"), check(api.NetworkReady, "container runtime network")
}

// truncateText returns at most the first 1 KiB of s.
func truncateText(s string) string { return s[:min(len(s), 1<<10)] }

// Ready returns nil if the runtime is ready to run pods, and otherwise the reason in the text of a
// kubelet. A runtime that does not respond counts as ready until downAfter has passed, because it
// may be restarting.
func (r *Runtime) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch s := r.state; {
	case s.at.IsZero():
		return errEarly
	case !s.isAnswering && time.Since(s.at) >= downAfter:
		return errDown
	default:
		return errors.Join(s.runtime, s.network)
	}
}

// CheckPodNetwork returns nil if a pod with its own network namespace can be started now, and otherwise the
// reason.
func (r *Runtime) CheckPodNetwork() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch s := r.state; {
	case s.at.IsZero():
		return errEarly
	case !s.isAnswering:
		return errDown
	default:
		return s.network
	}
}

// IsResponding reports whether the last status check succeeded.
func (r *Runtime) IsResponding() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.isAnswering
}

// Await waits until the runtime responds. It reports whether it had to wait.
func (r *Runtime) Await(ctx context.Context) (waited bool, err error) {
	for {
		r.mu.Lock()
		there, stateChanged := r.state.isAnswering, r.stateChanged
		r.mu.Unlock()
		if there {
			return waited, nil
		}
		waited = true
		select {
		case <-stateChanged:
		case <-ctx.Done():
			return waited, ctx.Err()
		}
	}
}
