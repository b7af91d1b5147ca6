package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A kubelet asks as often, and takes a runtime for down after as long.
const (
	askEvery  = 5 * time.Second
	downAfter = 30 * time.Second
)

// errDown and errEarly are a kubelet's words.
var (
	errDown  = errors.New("container runtime is down")
	errEarly = errors.New("container runtime status check may not have completed yet")
)

// state is what the runtime last said of itself.
type state struct {
	answers bool      // the last question was answered
	at      time.Time // of the last answer; zero: there was none
	runtime error     // why it is not ready, as a kubelet words it
	network error     // the same of its network
}

// same reports whether two states tell the same.
func (s state) same(o state) bool {
	return s.answers == o.answers && text(s.runtime) == text(o.runtime) && text(s.network) == text(o.network)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Run asks the runtime how it is until ctx ends: when the connection with it stands or
// breaks, and every few seconds.
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
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	down := time.NewTimer(downAfter) // tells that the runtime has not answered for so long
	defer down.Stop()
	for {
		if r.Ask(ctx) {
			down.Reset(downAfter)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-down.C:
			r.c.Log.Error("the container runtime does not answer; pods that run go on, and none are started", "endpoint", r.c.Endpoint)
			r.c.Changed()
		case <-connection:
		case <-tick.C:
		}
	}
}

// Ask asks the runtime how it is, and reports whether it answers.
func (r *Runtime) Ask(ctx context.Context) bool {
	bounded, stop := context.WithTimeout(ctx, downAfter)
	defer stop()
	resp, err := r.Status(bounded, &api.StatusRequest{})
	if ctx.Err() != nil {
		return false
	}
	r.mu.Lock()
	before := r.state
	now := state{answers: err == nil, at: before.at, runtime: before.runtime, network: before.network}
	if err == nil {
		now.at = time.Now()
		now.runtime, now.network = conditions(resp.GetStatus())
	}
	r.state = now
	changed := !now.same(before)
	if changed {
		close(r.moved)
		r.moved = make(chan struct{})
	}
	r.mu.Unlock()
	if !changed {
		return err == nil
	}
	switch {
	case err != nil:
		r.c.Log.Warn("the container runtime does not answer", "endpoint", r.c.Endpoint, "error", err)
	case !before.answers:
		r.c.Log.Info("the container runtime answers", "endpoint", r.c.Endpoint)
	}
	if err == nil { // else down tells, if it lasts
		r.c.Changed()
	}
	return err == nil
}

// conditions are why a runtime and its network are not ready.
func conditions(s *api.RuntimeStatus) (runtime, network error) {
	of := func(kind, what string) error {
		for _, c := range s.GetConditions() {
			if c.Type != kind {
				continue
			}
			if c.Status {
				return nil
			}
			return fmt.Errorf("%s not ready: %s=false reason:%s message:%s", what, kind, bounded(c.Reason), bounded(c.Message))
		}
		return fmt.Errorf("%s not ready: the runtime reports no condition %s", what, kind)
	}
	return of(api.RuntimeReady, "container runtime"), of(api.NetworkReady, "container runtime network")
}

// bounded is a text of the runtime's as far as it is shown.
func bounded(s string) string { return s[:min(len(s), 1<<10)] }

// Ready is why pods cannot run, as a kubelet words it; nil: they can. That the runtime
// has not answered for a few seconds, as when it is restarted, is no reason.
func (r *Runtime) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch s := r.state; {
	case s.at.IsZero():
		return errEarly
	case !s.answers && time.Since(s.at) >= downAfter:
		return errDown
	default:
		return errors.Join(s.runtime, s.network)
	}
}

// Admits is why no pod with a network of its own can start now.
func (r *Runtime) Admits() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch s := r.state; {
	case s.at.IsZero():
		return errEarly
	case !s.answers:
		return errDown
	default:
		return s.network
	}
}

// Answers reports whether the runtime answered when it was last asked.
func (r *Runtime) Answers() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.answers
}

// Await returns once the runtime answers, and whether it did not when Await was called.
func (r *Runtime) Await(ctx context.Context) (waited bool, err error) {
	for {
		r.mu.Lock()
		there, moved := r.state.answers, r.moved
		r.mu.Unlock()
		if there {
			return waited, nil
		}
		waited = true
		select {
		case <-moved:
		case <-ctx.Done():
			return waited, ctx.Err()
		}
	}
}
