package remote

import (
	"context"
	"errors"
	"io"
	"maps"
	"time"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// Intervals at which the runtime's lists are compared with the previous ones. A kubelet compares
// them every second. If there are events, the comparison finds missed changes, because some
// runtimes drop events while there is no subscriber. If there are no events, it finds containers
// that have ended by themselves. The agent checks the results of its own calls anyway. The interval
// is compareSoon after a recent change, compareLater after that, and compareSeldom if nothing is
// running.
const (
	compareSoon   = time.Second
	compareLater  = 4 * time.Second
	compareSeldom = 30 * time.Second
	lively        = time.Minute // how long after a change the interval is compareSoon
)

// errBack makes the subscriber list everything again.
var errBack = errors.New("the container runtime was away and answers again")

// ContainerEvents calls handle for each pod with a change until ctx ends or the connection to the
// runtime is lost. Before that, it waits until the runtime responds. Only the UID of the pod is
// always set in the events.
func (r *Runtime) ContainerEvents(ctx context.Context, handle func(*api.ContainerEventResponse)) error {
	if waited, err := r.Await(ctx); err != nil {
		return err
	} else if waited {
		return errBack
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stream := make(chan error, 1)
	go func() { stream <- r.Client.ContainerEvents(ctx, handle) }()
	f := &follower{r: r, handle: handle, evented: true, changed: time.Now()}
	timer := time.NewTimer(compareSoon)
	defer timer.Stop()
	due := time.Now().Add(compareSoon)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-stream:
			if !hasNoEvents(err) {
				return err
			}
			stream, f.evented = nil, false // the runtime reports this at once
		case <-r.calls.acted:
			f.changed = time.Now()
		case <-timer.C:
			if err := f.compare(ctx); err != nil {
				return err
			}
			due = time.Now().Add(compareSeldom)
		}
		// Never postpone the comparison, because calls may follow one another for a long time.
		if next := time.Now().Add(f.pause()); next.Before(due) {
			due = next
		}
		timer.Reset(time.Until(due))
	}
}

// hasNoEvents reports whether an error means that the runtime has no events. Older runtimes do not
// implement the call, and CRI-O closes the stream unless enable_pod_events is set.
func hasNoEvents(err error) bool { return errors.Is(err, io.EOF) || errdefs.IsNotImplemented(err) }

// A follower compares lists.
type follower struct {
	r       *Runtime
	handle  func(*api.ContainerEventResponse)
	evented bool
	changed time.Time // time of the last change
	seen    map[string]objectState
	live    bool // whether something is running
}

// An objectState is the state of a sandbox or container in a list.
type objectState struct {
	pod   string
	state int32
}

// pause returns the delay until the next comparison.
func (f *follower) pause() time.Duration {
	switch {
	case f.evented:
		return compareSeldom
	case time.Since(f.changed) < lively:
		return compareSoon
	case f.live:
		return compareLater
	default:
		return compareSeldom
	}
}

// compare lists everything and calls handle for each pod that has changed since the last
// comparison.
func (f *follower) compare(ctx context.Context) error {
	now, live, err := f.r.listObjects(ctx)
	if err != nil {
		return err
	}
	pods := map[string]struct{}{}
	for id, t := range now {
		if f.seen[id] != t {
			pods[t.pod] = struct{}{}
		}
	}
	for id, t := range f.seen {
		if _, stays := now[id]; !stays {
			pods[t.pod] = struct{}{}
		}
	}
	if len(pods) > 0 && f.seen != nil {
		f.changed = time.Now()
	}
	f.seen, f.live = now, live
	for uid := range maps.Keys(pods) {
		f.handle(&api.ContainerEventResponse{PodSandboxStatus: &api.PodSandboxStatus{Metadata: &api.PodSandboxMetadata{Uid: uid}}})
	}
	return nil
}

// listObjects returns the sandboxes and containers of pods by ID. live reports whether any of them
// is running.
func (r *Runtime) listObjects(ctx context.Context) (all map[string]objectState, live bool, err error) {
	sandboxes, err := r.ListPodSandbox(ctx, &api.ListPodSandboxRequest{})
	if err != nil {
		return nil, false, err
	}
	containers, err := r.ListContainers(ctx, &api.ListContainersRequest{})
	if err != nil {
		return nil, false, err
	}
	all = make(map[string]objectState, len(sandboxes.Items)+len(containers.Containers))
	for _, s := range sandboxes.Items {
		if uid := s.Labels[keys.PodUID]; uid != "" {
			all[s.Id] = objectState{uid, int32(s.State)}
			live = live || s.State == api.PodSandboxState_SANDBOX_READY
		}
	}
	for _, c := range containers.Containers {
		if uid := c.Labels[keys.PodUID]; uid != "" {
			all[c.Id] = objectState{uid, int32(c.State)}
			live = live || c.State == api.ContainerState_CONTAINER_RUNNING
		}
	}
	return all, live, nil
}
