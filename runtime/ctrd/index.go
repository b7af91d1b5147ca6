package ctrd

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/namespace"
	"github.com/islet-edge/islet/runtime/shim/wire"
	"github.com/islet-edge/islet/runtime/taskshim"
)

// A sandbox is one in memory. rec.Stopped, resized, ready and pid may change, under
// Runtime.mu; config is never changed.
type sandbox struct {
	rec     sandboxRecord
	config  *api.PodSandboxConfig
	oci     wire.OCI                   // never changed
	tasks   *taskshim.Shim             // never changed; nil: islet's own shim runs its containers
	resized *api.LinuxPodSandboxConfig // nil: not since it was made; never changed itself
	ready   bool
	pid     int  // of the init
	over    bool // the init has ended
	damaged bool // a process of it could not be ended: it is not taken over
}

// A container is one in memory. The fields of rec after CreatedAt, pid and ending
// may change, under Runtime.mu; config is replaced under it and its own lock.
type container struct {
	rec     containerRecord
	config  *api.ContainerConfig
	pid     int           // while it runs
	ending  *wire.Exit    // has ended, but that is not recorded yet
	done    chan struct{} // closed once its exit is recorded
	mounts  *wire.Mounts  // for its shim; nil: it starts among the host's mounts
	dropped atomic.Bool   // what it wrote was freed

	tidied     bool // its bundle was removed, by this process; under its own lock
	unreported bool // its end is recorded, of which its shim knows nothing yet; under its own lock
}

func (c *container) state() api.ContainerState {
	switch {
	case !c.rec.FinishedAt.IsZero():
		return api.ContainerState_CONTAINER_EXITED
	case !c.rec.StartedAt.IsZero():
		return api.ContainerState_CONTAINER_RUNNING
	}
	return api.ContainerState_CONTAINER_CREATED
}

func (s *sandbox) state() api.PodSandboxState {
	if s.ready {
		return api.PodSandboxState_SANDBOX_READY
	}
	return api.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) namespaces() *api.NamespaceOption {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

func (s *sandbox) hostNetwork() bool { return s.namespaces().GetNetwork() == api.NamespaceMode_NODE }

func (s *sandbox) hostIPC() bool { return s.namespaces().GetIpc() == api.NamespaceMode_NODE }

// hasInit says whether it has a process of its own: the init of a shared process
// namespace, or the container by which a containerd shim makes a sandbox.
func (s *sandbox) hasInit() bool { return s.sharedPID() || s.tasks != nil }

// sharedPID says whether its containers share one process namespace of the pod.
func (s *sandbox) sharedPID() bool { return s.namespaces().GetPid() == api.NamespaceMode_POD }

// netns is the path of the pinned network namespace, "" for the host's.
func (r *Runtime) netns(s *sandbox) string {
	if s.hostNetwork() {
		return ""
	}
	return filepath.Join(r.dirs.pins, s.rec.ID, namespace.Net)
}

// SandboxNetwork returns the path of a sandbox's pinned network namespace, "" for the
// host's or an unknown sandbox, and namespace/name of its pod.
func (r *Runtime) SandboxNetwork(id string) (path, pod string) {
	r.mu.Lock()
	s := r.sandboxes[id]
	r.mu.Unlock()
	if s == nil {
		return "", ""
	}
	m := s.config.GetMetadata()
	return r.netns(s), m.GetNamespace() + "/" + m.GetName()
}

// sandbox finds one by its ID or a unique beginning of it, as crictl gives.
func (r *Runtime) sandbox(id string) (*sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := find(r.sandboxes, id)
	if err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", id, err)
	}
	return s, nil
}

func (r *Runtime) container(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := find(r.containers, id)
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", id, err)
	}
	return c, nil
}

func find[T any](m map[string]*T, id string) (*T, error) {
	if t, ok := m[id]; ok {
		return t, nil
	}
	var found *T
	if id != "" {
		for k, t := range m {
			if !strings.HasPrefix(k, id) {
				continue
			}
			if found != nil {
				return nil, fmt.Errorf("more than one begins so: %w", errdefs.ErrInvalidArgument)
			}
			found = t
		}
	}
	if found == nil {
		return nil, errdefs.ErrNotFound
	}
	return found, nil
}

// wholeID returns the only ID in m that begins with id, or id if none does or several do: a filter
// then lets nothing through, as in other CRI runtimes.
func wholeID[T any](m map[string]*T, id string) string {
	if m[id] != nil {
		return id
	}
	found := ""
	for k := range m {
		if id == "" || !strings.HasPrefix(k, id) {
			continue
		}
		if found != "" {
			return id
		}
		found = k
	}
	return cmp.Or(found, id)
}

// is says whether a filter's whole ID means this one; empty means all.
func is(id, want string) bool { return want == "" || id == want }

// containersOf lists a sandbox's containers.
func (r *Runtime) containersOf(sandbox string) []*container {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*container
	for _, c := range r.containers {
		if c.rec.Sandbox == sandbox {
			out = append(out, c)
		}
	}
	return out
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// matches says whether all of want are among labels.
func matches(labels, want map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}
