package ctrd

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// watchers contains the subscribers of container events. The zero value is ready to use.
type watchers struct {
	mu sync.Mutex
	m  map[int]watcher
	n  int
}

// A watcher is a subscriber of container events. Exactly one of its two handlers is set.
type watcher struct {
	handleEvent func(*api.ContainerEventResponse)
	handlePod   func(uid string)
}

// ContainerEvents calls handle for each container event until ctx ends.
func (r *Runtime) ContainerEvents(ctx context.Context, handle func(*api.ContainerEventResponse)) error {
	defer r.Subscribe(handle)()
	<-ctx.Done()
	return ctx.Err()
}

// Subscribe registers handle, which is then called for each container event. The returned function ends the subscription: after it has
// returned, the handler is not called any more.
func (r *Runtime) Subscribe(handle func(*api.ContainerEventResponse)) (end func()) {
	return r.watch.add(watcher{handleEvent: handle})
}

// WatchPods registers handle, which is then called with the pod's UID for each container event. The returned function ends the
// subscription, like the one that Subscribe returns.
func (r *Runtime) WatchPods(handle func(uid string)) (end func()) {
	return r.watch.add(watcher{handlePod: handle})
}

// add adds a watcher. The returned function removes it.
func (w *watchers) add(one watcher) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		w.m = map[int]watcher{}
	}
	w.n++
	id := w.n
	w.m[id] = one
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

// notifySandbox is like notifySubscribers for a sandbox that may no longer be in r.sandboxes.
func (r *Runtime) notifySandbox(s *sandbox, id string, typ api.ContainerEventType) {
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	if s == nil {
		return
	}
	var handlers []func(*api.ContainerEventResponse)
	for _, w := range r.watch.m {
		if w.handlePod != nil {
			w.handlePod(s.config.GetMetadata().GetUid())
		} else {
			handlers = append(handlers, w.handleEvent)
		}
	}
	if len(handlers) == 0 {
		return
	}
	e := &api.ContainerEventResponse{
		ContainerId: id, ContainerEventType: typ, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: r.sandboxStatus(s),
	}
	for _, c := range r.containersOf(s.rec.ID) {
		e.ContainersStatuses = append(e.ContainersStatuses, r.containerStatus(c))
	}
	for _, handle := range handlers {
		handle(proto.CloneOf(e))
	}
}
