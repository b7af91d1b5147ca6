package ctrd

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// watchers contains the subscribers of container events. The zero value is ready.
type watchers struct {
	mu sync.Mutex
	m  map[int]func(*api.ContainerEventResponse)
	n  int
}

// ContainerEvents calls the handler for each change until ctx ends.
func (r *Runtime) ContainerEvents(ctx context.Context, handle func(*api.ContainerEventResponse)) error {
	defer r.Subscribe(handle)()
	<-ctx.Done()
	return ctx.Err()
}

// Subscribe calls the handler for each change. The returned function ends the subscription: after it has returned, the handler is not
// called any more.
func (r *Runtime) Subscribe(handle func(*api.ContainerEventResponse)) (end func()) {
	w := &r.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		w.m = map[int]func(*api.ContainerEventResponse){}
	}
	w.n++
	id := w.n
	w.m[id] = handle
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.m, id)
	}
}

// notifySubscribers sends an event about a sandbox, or about one of its containers, to the subscribers.
func (r *Runtime) notifySubscribers(sandbox, id string, typ api.ContainerEventType) {
	r.mu.Lock()
	s := r.sandboxes[sandbox]
	r.mu.Unlock()
	r.notifySandbox(s, id, typ)
}

// notifySandbox does the same as notify for a sandbox that may no longer be in r.sandboxes.
func (r *Runtime) notifySandbox(s *sandbox, id string, typ api.ContainerEventType) {
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	if s == nil || len(r.watch.m) == 0 {
		return
	}
	e := &api.ContainerEventResponse{
		ContainerId: id, ContainerEventType: typ, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: r.sandboxStatus(s),
	}
	for _, c := range r.containersOf(s.rec.ID) {
		e.ContainersStatuses = append(e.ContainersStatuses, r.containerStatus(c))
	}
	for _, handle := range r.watch.m {
		handle(proto.CloneOf(e))
	}
}
