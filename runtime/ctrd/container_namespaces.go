package ctrd

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/namespace"
	"github.com/islet-edge/islet/runtime/ocispec"
)

// namespacesOf says which namespaces a container joins.
func (r *Runtime) namespacesOf(s *sandbox, c *container) (ocispec.Namespaces, error) {
	pins := filepath.Join(r.dirs.pins, s.rec.ID)
	var n ocispec.Namespaces
	if !s.hostNetwork() {
		n.Net, n.UTS = filepath.Join(pins, namespace.Net), filepath.Join(pins, namespace.UTS)
	}
	if !s.hostIPC() {
		n.IPC = filepath.Join(pins, namespace.IPC)
	}
	o := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o.GetPid() {
	case api.NamespaceMode_NODE:
		n.HostPID = true
	case api.NamespaceMode_POD:
		if s.pid > 0 { // crictl may ask for it with a sandbox that shares nothing
			n.PID = pidNamespace(s.pid)
		}
	case api.NamespaceMode_TARGET:
		t, err := find(r.containers, o.GetTargetId())
		if err != nil {
			return n, fmt.Errorf("target container %q: %w", o.GetTargetId(), err)
		}
		if t.pid == 0 {
			return n, fmt.Errorf("target container %q does not run: %w", o.GetTargetId(), errdefs.ErrFailedPrecondition)
		}
		n.PID = pidNamespace(t.pid)
	}
	return n, nil
}

func pidNamespace(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/ns/pid" }

// cgroupsPath is where the OCI runtime puts a container: below its pod's cgroup,
// or for systemd a scope in its pod's slice.
func (r *Runtime) cgroupsPath(s *sandbox, id string) string {
	parent := s.config.GetLinux().GetCgroupParent()
	if r.c.SystemdCgroup {
		if parent == "" {
			parent = "system.slice"
		}
		return filepath.Base(parent) + ":islet:" + id
	}
	if parent == "" {
		parent = "/k8s.io"
	}
	return filepath.Join(parent, id)
}
