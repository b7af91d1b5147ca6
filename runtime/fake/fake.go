package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A Runtime is a runtime in memory. Set its exported fields before the first call.
type Runtime struct {
	// Fail, if not nil, is called before each call that is recorded by Calls. Its parameter subject names the object of the call: a pod, a
	// container in the form pod/container, or an image. If Fail returns an error, the call returns this error.
	Fail func(call, subject string) error
	// Started, if not nil, is called without a lock when a container has started, so it may call
	// End.
	Started func(id string, c *api.ContainerConfig)

	mu         sync.Mutex
	images     map[string]string // image ID by reference
	sandboxes  map[string]*sandbox
	containers map[string]*container
	watchers   map[int]func(*api.ContainerEventResponse)
	serial     int
	calls      []string
}

type sandbox struct {
	status *api.PodSandboxStatus
	config *api.PodSandboxConfig
}

type container struct {
	sandbox string
	status  *api.ContainerStatus
	config  *api.ContainerConfig
}

// New returns a runtime that contains images with the given references.
func New(images ...string) *Runtime {
	r := &Runtime{
		images: map[string]string{}, sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		watchers: map[int]func(*api.ContainerEventResponse){},
	}
	for i, ref := range images {
		r.images[ref] = fmt.Sprintf("sha256:%064d", i+1)
	}
	return r
}

// Calls returns the recorded calls in the form "StartContainer pod/container". Calls that only read
// are not recorded, except Status.
func (r *Runtime) Calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// End ends a container with an exit code. It does nothing if the container is not running.
func (r *Runtime) End(id string, code int32) { r.EndFor(id, code, exitReason(code)) }

// EndFor is like End, but also sets the reason, such as OOMKilled.
func (r *Runtime) EndFor(id string, code int32, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil && c.status.State == api.ContainerState_CONTAINER_RUNNING {
		r.endContainer(c, code, why)
	}
}

// LoseSandbox sets a sandbox to not ready, as after a crash of its process.
func (r *Runtime) LoseSandbox(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[id]; s != nil {
		s.status.State, s.status.Network = api.PodSandboxState_SANDBOX_NOTREADY, nil
		r.sendEvent(id, id, api.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// Reboot ends all sandboxes and running containers without sending events.
func (r *Runtime) Reboot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	watchers := r.watchers
	r.watchers = nil
	for _, s := range r.sandboxes {
		s.status.State, s.status.Network = api.PodSandboxState_SANDBOX_NOTREADY, nil
	}
	for _, c := range r.containers {
		if c.status.State == api.ContainerState_CONTAINER_RUNNING {
			r.endContainer(c, 255, "Unknown")
		}
	}
	r.watchers = watchers
}

func exitReason(code int32) string {
	if code == 0 {
		return "Completed"
	}
	return "Error"
}

// endContainer ends a container. The caller holds the lock.
func (r *Runtime) endContainer(c *container, code int32, why string) {
	c.status.State, c.status.ExitCode, c.status.Reason = api.ContainerState_CONTAINER_EXITED, code, why
	c.status.FinishedAt = time.Now().UnixNano()
	r.sendEvent(c.sandbox, c.status.Id, api.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// recordCall records a call and returns the error of Fail. The caller must not hold the lock.
func (r *Runtime) recordCall(name, subject string) error {
	r.mu.Lock()
	r.calls = append(r.calls, name+" "+subject)
	r.mu.Unlock()
	if r.Fail != nil {
		return r.Fail(name, subject)
	}
	return nil
}

func (r *Runtime) findSandbox(id string) (*sandbox, error) {
	if s := r.sandboxes[id]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("sandbox %q: %w", id, errdefs.ErrNotFound)
}

func (r *Runtime) findContainer(id string) (*container, error) {
	if c := r.containers[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
}

// callSubject returns the subject of a call for Fail and Calls. For a sandbox ID this is the name of the pod, and for a container ID
// pod/container. Any other argument is returned unchanged. The caller must not hold the lock.
func (r *Runtime) callSubject(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		return r.sandboxes[c.sandbox].config.GetMetadata().GetName() + "/" + c.config.GetMetadata().GetName()
	}
	if s := r.sandboxes[id]; s != nil {
		return s.config.GetMetadata().GetName()
	}
	return id
}

// ContainerEvents calls the handler for each change until ctx ends.
func (r *Runtime) ContainerEvents(ctx context.Context, handle func(*api.ContainerEventResponse)) error {
	defer r.Subscribe(handle)()
	<-ctx.Done()
	return ctx.Err()
}

// Subscribe calls the handler for each change. The returned function ends the subscription.
func (r *Runtime) Subscribe(handle func(*api.ContainerEventResponse)) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serial++
	id := r.serial
	r.watchers[id] = handle
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, id)
	}
}

// sendEvent sends an event. The caller holds the lock.
func (r *Runtime) sendEvent(pod, id string, what api.ContainerEventType) {
	e := &api.ContainerEventResponse{ContainerId: id, ContainerEventType: what, CreatedAt: time.Now().UnixNano()}
	if s := r.sandboxes[pod]; s != nil {
		e.PodSandboxStatus = proto.CloneOf(s.status)
	}
	for _, k := range slices.Sorted(maps.Keys(r.containers)) {
		if c := r.containers[k]; c.sandbox == pod {
			e.ContainersStatuses = append(e.ContainersStatuses, proto.CloneOf(c.status))
		}
	}
	for _, handle := range r.watchers {
		handle(proto.CloneOf(e))
	}
}

func matchLabels(labels, want map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// resolveID returns the only key of m that begins with id. If there is no such key or more than
// one, it returns the argument id.
func resolveID[T any](m map[string]T, id string) string {
	var found []string
	for k := range m {
		if id != "" && strings.HasPrefix(k, id) {
			found = append(found, k)
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return id
}
