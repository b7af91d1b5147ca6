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

// A sandbox contains the record and the current state of a sandbox. Runtime.mu guards the fields that may change, which
// are rec.Stopped, resized, ready, pid, initBegun, initEnded, endedPid and damaged.
type sandbox struct {
	rec       sandboxRecord
	config    *api.PodSandboxConfig
	oci       wire.OCI                   // never changes
	tasks     *taskshim.Shim             // never changes; nil if islet's own shim runs the containers
	resized   *api.LinuxPodSandboxConfig // nil if never resized; the message it points to does not change
	ready     bool
	pid       int  // PID of the init process
	initBegun bool // whether a shim may have been told to start the init process
	initEnded bool // whether the init process has ended
	endedPid  int  // PID of an init process that ended while pid was 0; it may belong to an earlier sandbox of this ID
	damaged   bool // one of its processes could not be killed, so the sandbox is not taken over

	tornDown bool // this process has removed its network, namespaces and files; guarded by the sandbox's lock
}

// A container contains the record and the current state of a container. Runtime.mu guards the fields pid and pendingExit, and the progress
// in rec. The configuration is replaced under both Runtime.mu and the container's lock.
type container struct {
	rec         containerRecord
	config      *api.ContainerConfig
	pid         int           // 0 unless it is running
	pendingExit *wire.Exit    // the exit until it is recorded
	done        chan struct{} // closed once its exit is recorded
	mounts      *wire.Mounts  // mounts for its shim; if nil, the container starts in the host's mount namespace
	plain       bool          // see wire.RunRequest.Plain; false if another agent created the container
	dropped     atomic.Bool   // whether its writable layer was deleted

	cleanedUp  bool // whether this process has removed its bundle; guarded by the container's lock
	unrecorded bool // whether the record lacks the last change of its configuration; guarded by the container's lock
	unreported bool // whether the end is recorded but not reported by the shim; guarded by the container's lock
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

// hasInit reports whether the sandbox has a process of its own. This is the init of a shared PID
// namespace, or the container that represents the sandbox in a containerd shim.
func (s *sandbox) hasInit() bool { return s.sharedPID() || s.tasks != nil }

// sharedPID reports whether the pod's containers share a PID namespace.
func (s *sandbox) sharedPID() bool { return s.namespaces().GetPid() == api.NamespaceMode_POD }

// netnsPath returns the path of the pinned network namespace, or "" if the sandbox uses the host's.
func (r *Runtime) netnsPath(s *sandbox) string {
	if s.hostNetwork() {
		return ""
	}
	return filepath.Join(r.dirs.pins, s.rec.ID, namespace.Net)
}

// SandboxNetwork returns the path of a sandbox's pinned network namespace, and the namespace/name of its pod. The path is
// "" for the host's network or an unknown sandbox.
func (r *Runtime) SandboxNetwork(id string) (path, pod string) {
	r.mu.Lock()
	s := r.sandboxes[id]
	r.mu.Unlock()
	if s == nil {
		return "", ""
	}
	m := s.config.GetMetadata()
	return r.netnsPath(s), m.GetNamespace() + "/" + m.GetName()
}

// findSandbox returns the sandbox with this ID. crictl may send a prefix of the ID, which must be
// unique.
func (r *Runtime) findSandbox(id string) (*sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := find(r.sandboxes, id)
	if err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", id, err)
	}
	return s, nil
}

func (r *Runtime) findContainer(id string) (*container, error) {
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
				return nil, fmt.Errorf("more than one ID begins with this: %w", errdefs.ErrInvalidArgument)
			}
			found = t
		}
	}
	if found == nil {
		return nil, errdefs.ErrNotFound
	}
	return found, nil
}

// expandID returns the only ID in m that begins with id. If there is none, or more than one, it
// returns id, so that the filter matches nothing, as in other CRI runtimes.
func expandID[T any](m map[string]*T, id string) string {
	if id == "" || m[id] != nil {
		return id
	}
	found := ""
	for k := range m {
		if !strings.HasPrefix(k, id) {
			continue
		}
		if found != "" {
			return id
		}
		found = k
	}
	return cmp.Or(found, id)
}

// idMatches reports whether an ID matches the complete ID of a filter. An empty filter matches
// every ID.
func idMatches(id, want string) bool { return want == "" || id == want }

// containersOf returns a sandbox's containers.
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

func unixNanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// matchLabels reports whether the labels contain all the wanted ones.
func matchLabels(labels, want map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}
