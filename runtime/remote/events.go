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

// How often the runtime's lists are compared. A kubelet does so every second. With events
// it finds what they missed: some runtimes lose those that nobody follows just then.
// Without, it finds what ended by itself, since the agent looks after its own calls
// anyway: soon, while things are changing; later, when nothing has for a while; and
// hardly ever, when nothing runs that could end.
const (
	compareSoon   = time.Second
	compareLater  = 4 * time.Second
	compareSeldom = 30 * time.Second
	lively        = time.Minute // for how long after a change
)

// errBack asks who follows the events to list everything.
var errBack = errors.New("the container runtime was away and answers again")

// ContainerEvents calls handle for each pod of which something changed, until ctx ends or
// the runtime is gone. While it is gone, ContainerEvents waits. The events name the pod
// (its UID) and nothing else for certain.
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
			if !absent(err) {
				return err
			}
			stream, f.evented = nil, false // which it says at once
		case <-r.calls.acted:
			f.changed = time.Now()
		case <-timer.C:
			if err := f.compare(ctx); err != nil {
				return err
			}
			due = time.Now().Add(compareSeldom)
		}
		if next := time.Now().Add(f.pause()); next.Before(due) { // never later: calls may follow each other for long
			due = next
		}
		timer.Reset(time.Until(due))
	}
}

// absent reports whether a runtime has no events: older ones do not know the call, and
// CRI-O ends the stream unless enable_pod_events is set.
func absent(err error) bool { return errors.Is(err, io.EOF) || errdefs.IsNotImplemented(err) }

// A follower compares lists.
type follower struct {
	r       *Runtime
	handle  func(*api.ContainerEventResponse)
	evented bool
	changed time.Time // when something last did
	seen    map[string]thing
	live    bool // something runs
}

// A thing is a sandbox or container as a list has it.
type thing struct {
	pod   string
	state int32
}

// pause is how long until the next comparison.
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

// compare tells of the pods of which something is other than it was.
func (f *follower) compare(ctx context.Context) error {
	now, live, err := f.r.things(ctx)
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

// things are what there is of pods, by ID, and whether some of it runs.
func (r *Runtime) things(ctx context.Context) (all map[string]thing, live bool, err error) {
	sandboxes, err := r.ListPodSandbox(ctx, &api.ListPodSandboxRequest{})
	if err != nil {
		return nil, false, err
	}
	containers, err := r.ListContainers(ctx, &api.ListContainersRequest{})
	if err != nil {
		return nil, false, err
	}
	all = make(map[string]thing, len(sandboxes.Items)+len(containers.Containers))
	for _, s := range sandboxes.Items {
		if uid := s.Labels[keys.PodUID]; uid != "" {
			all[s.Id] = thing{uid, int32(s.State)}
			live = live || s.State == api.PodSandboxState_SANDBOX_READY
		}
	}
	for _, c := range containers.Containers {
		if uid := c.Labels[keys.PodUID]; uid != "" {
			all[c.Id] = thing{uid, int32(c.State)}
			live = live || c.State == api.ContainerState_CONTAINER_RUNNING
		}
	}
	return all, live, nil
}
