package ctrd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/namespace"
	"github.com/islet-edge/islet/runtime/ocispec"
)

// sandboxNamespaces returns the namespaces that all containers of a sandbox share.
func (r *Runtime) sandboxNamespaces(s *sandbox) ocispec.Namespaces {
	pins := filepath.Join(r.dirs.pins, s.rec.ID)
	var n ocispec.Namespaces
	if u := s.userMappings(); u != nil {
		n.Users, n.UIDs = filepath.Join(pins, namespace.User), u.UIDs.Count
	}
	if !s.hostNetwork() {
		n.Net, n.UTS = filepath.Join(pins, namespace.Net), filepath.Join(pins, namespace.UTS)
	}
	if !s.hostIPC() {
		n.IPC = filepath.Join(pins, namespace.IPC)
	}
	return n
}

// namespacesOf returns the namespaces that a container joins.
func (r *Runtime) namespacesOf(s *sandbox, c *container) (ocispec.Namespaces, error) {
	n := r.sandboxNamespaces(s)
	o := c.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	switch o.GetPid() {
	case api.NamespaceMode_NODE:
		n.HostPID = true
	case api.NamespaceMode_POD:
		r.mu.Lock()
		defer r.mu.Unlock()
		if s.pid > 0 && s.sharedPID() { // crictl may request mode POD although the sandbox has no shared PID namespace
			n.PID = pidNamespace(s.pid)
		}
	case api.NamespaceMode_TARGET:
		var err error
		n.PID, err = r.pinTargetPID(s, c, o.GetTargetId())
		return n, err
	}
	return n, nil
}

// pinTargetPID pins the PID namespace of another container of the same pod. It returns the path of
// the pin. The pin exists until c has started.
func (r *Runtime) pinTargetPID(s *sandbox, c *container, target string) (string, error) {
	r.mu.Lock()
	t, err := find(r.containers, target)
	var pid int
	if err == nil {
		pid = t.pid
	}
	r.mu.Unlock()
	switch {
	case err != nil:
		return "", fmt.Errorf("target container %q: %w", target, err)
	case t.rec.Sandbox != s.rec.ID:
		return "", fmt.Errorf("target container %q does not belong to sandbox %q: %w", target, s.rec.ID, errdefs.ErrFailedPrecondition)
	case pid == 0:
		return "", fmt.Errorf("target container %q is not running: %w", target, errdefs.ErrFailedPrecondition)
	}
	path := r.pidNamespacePin(c)
	err = namespace.PinProcesses(path, pid, func() error {
		place, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
		if err == nil && !strings.Contains(string(place), t.rec.ID) {
			err = errors.New("it has ended")
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("target container %q is not running: %w: %w", target, err, errdefs.ErrFailedPrecondition)
	}
	return path, nil
}

// pidNamespacePin returns the path of the pinned PID namespace that a container joins.
func (r *Runtime) pidNamespacePin(c *container) string {
	return namespace.PIDPath(filepath.Join(r.dirs.pins, c.rec.Sandbox), c.rec.ID)
}

// removePin removes the pin that pinTargetPID created. Call it when c has joined the namespace or has
// failed to start.
func (r *Runtime) removePin(c *container) {
	if c.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() != api.NamespaceMode_TARGET {
		return
	}
	if err := namespace.UnpinProcesses(r.pidNamespacePin(c)); err != nil {
		r.log.Warn("the target's PID namespace stays pinned until the sandbox stops", "container", c.rec.ID, "error", err)
	}
}

func pidNamespace(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/ns/pid" }

// cgroupsPath returns the container's cgroup in the OCI runtime's notation. This is a path below
// the pod's cgroup or, with systemd, a scope in the pod's slice.
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
