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

// Intervals at which the lists of the runtime are compared with the previous ones. A kubelet compares them every second. With events, the
// interval is compareSeldom, and the comparison finds changes whose events were lost. Without events, the interval is compareSoon until
// recentPeriod has passed since a change. After that it is compareLater while a container or sandbox is running, and otherwise
// compareSeldom. These intervals do not delay the agent's own changes, because the agent knows the results of its calls.
const (
	compareSoon   = time.Second
	compareLater  = 4 * time.Second
	compareSeldom = 30 * time.Second
	recentPeriod  = time.Minute // time after a change
)

// errBack makes the caller list all objects again.
var errBack = errors.New("the container runtime did not respond for some time and responds again")

// ContainerEvents calls the handler for each change of a pod until ctx ends or the connection is
// lost. If the runtime does not respond, ContainerEvents waits until it responds again, and then
// returns errBack without calling the handler. An event may have only the UID of the pod.
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
	f := &follower{r: r, handleEvent: handle, evented: true, changed: time.Now()}
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
			stream, f.evented = nil, false // compare the lists instead
		case <-r.calls.objectChanged:
			f.changed = time.Now()
		case <-timer.C:
			if err := f.compareLists(ctx); err != nil {
				return err
			}
			due = time.Now().Add(compareSeldom)
		}
		// Frequent calls must not postpone the comparison.
		if next := time.Now().Add(f.nextDelay()); next.Before(due) {
			due = next
		}
		timer.Reset(time.Until(due))
	}
}

// hasNoEvents reports whether err means that the runtime does not support events. Older runtimes do
// not implement GetContainerEvents. CRI-O closes the stream unless enable_pod_events is set.
func hasNoEvents(err error) bool { return errors.Is(err, io.EOF) || errdefs.IsNotImplemented(err) }

// A follower compares the lists of the runtime with the previous ones.
type follower struct {
	r           *Runtime
	handleEvent func(*api.ContainerEventResponse)
	evented     bool
	changed     time.Time // time of the last change
	seen        map[string]objectState
	live        bool // whether a container or sandbox is running
}

// An objectState is the state of a sandbox or container in a list.
type objectState struct {
	pod   string
	state int32
}

// nextDelay returns the delay until the next comparison.
func (f *follower) nextDelay() time.Duration {
	switch {
	case f.evented:
		return compareSeldom
	case time.Since(f.changed) < recentPeriod:
		return compareSoon
	case f.live:
		return compareLater
	default:
		return compareSeldom
	}
}

// compareLists lists all sandboxes and containers. It calls the handler for each pod that has changed
// since the last comparison.
func (f *follower) compareLists(ctx context.Context) error {
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
		f.handleEvent(&api.ContainerEventResponse{PodSandboxStatus: &api.PodSandboxStatus{Metadata: &api.PodSandboxMetadata{Uid: uid}}})
	}
	return nil
}

// listObjects returns the sandboxes and containers of pods by ID. It also reports whether any of them is running.
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
