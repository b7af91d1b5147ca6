package ctrd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/crisuite"
	"github.com/islet-edge/islet/runtime/daemon"
)

// currentRunc returns a runc that supports idmapped mounts. It is built once from its module, because the runc of Debian 12 is too old.
func currentRunc(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("ISLET_TEST_PROGRAMS"); dir != "" { // on a machine without Go, such as a virtual machine
		return filepath.Join(dir, "runc")
	}
	cmd := exec.Command("../../test/runc/build.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build runc: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// newUsersNode returns a node whose OCI runtime supports user namespaces.
func newUsersNode(t testing.TB, shimPods int) *node {
	t.Helper()
	n := newNode(t, shimPods)
	n.stop(t)
	n.oci = currentRunc(t)
	n.start(t)
	return n
}

// usersConfig returns the configurations of a pod with a user namespace and of a container in it.
func (n *node) usersConfig(i int, name string, args ...string) (*api.PodSandboxConfig, *api.ContainerConfig) {
	cfg, c, users := n.podConfig(i), containerConfig(name, args...), crisuite.UserNamespace(uint32(i)<<16)
	if cfg.Linux.SecurityContext == nil {
		cfg.Linux.SecurityContext = &api.LinuxSandboxSecurityContext{}
	}
	cfg.Linux.SecurityContext.NamespaceOptions = &api.NamespaceOption{Pid: api.NamespaceMode_CONTAINER, UsernsOptions: users}
	c.Linux.SecurityContext = &api.LinuxContainerSecurityContext{NamespaceOptions: &api.NamespaceOption{Pid: api.NamespaceMode_CONTAINER, UsernsOptions: users}}
	return cfg, c
}

// TestUsersSurvive checks that a pod with a user namespace survives a restart of the agent. New containers can then be started in the pod.
// The pod does not survive a reboot.
func TestUsersSurvive(t *testing.T) {
	n := newUsersNode(t, 4)
	ctx := t.Context()
	cfg, c := n.usersConfig(7, "main", "wait")
	s, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	id := n.startIn(t, s.PodSandboxId, cfg, c)
	n.stop(t)
	n.start(t)
	for i, exec := range []string{id, ""} {
		if exec == "" {
			_, late := n.usersConfig(7, "late", "wait")
			exec = n.startIn(t, s.PodSandboxId, cfg, late)
		}
		out, err := n.ExecSync(ctx, &api.ExecSyncRequest{ContainerId: exec, Cmd: []string{"/prog", "read", "/proc/self/uid_map"}})
		if err != nil || strings.Join(strings.Fields(string(out.GetStdout())), " ") != "0 458752 65536" {
			t.Errorf("container %d after a restart: %q, %v", i, out.GetStdout(), err)
		}
	}
	n.stop(t)
	n.reboot(t)
	n.start(t)
	st, err := n.PodSandboxStatus(ctx, &api.PodSandboxStatusRequest{PodSandboxId: s.PodSandboxId})
	if err != nil || st.Status.State != api.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("after a reboot: %v, %v", st, err)
	}
}

// TestBundlesArePrivate checks that users of the host cannot access the root file system of a container. Its setuid programs would be a
// risk (CVE-2021-41103). The root user of a pod's user namespace cannot access the root file systems of other pods. Bundles that an earlier
// version has left accessible are protected too.
func TestBundlesArePrivate(t *testing.T) {
	n := newUsersNode(t, 4)
	_, id := n.runPod(t, 1, "wait")
	cfg, c := n.usersConfig(7, "main", "wait")
	s, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	mapped := n.startIn(t, s.PodSandboxId, cfg, c)
	inspect := func() (out []string) {
		for _, path := range []string{n.run + "/b/" + id, n.run + "/b/" + mapped} {
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			sys := st.Sys().(*syscall.Stat_t)
			out = append(out, fmt.Sprintf("%o %d %d", st.Mode().Perm(), sys.Uid, sys.Gid))
		}
		return out
	}
	if got, want := strings.Join(inspect(), ", "), "700 0 0, 710 0 458752"; got != want {
		t.Errorf("bundles are %s, not %s", got, want)
	}
	n.stop(t)
	if err := os.Chmod(n.run+"/b/"+id, 0o711); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	if got, want := strings.Join(inspect(), ", "), "700 0 0, 710 0 458752"; got != want {
		t.Errorf("after a restart bundles are %s, not %s", got, want)
	}
}

// TestUsersNative checks a pod with a user namespace and the native snapshotter. The owners of the image's copy and of the image volumes
// are mapped.
func TestUsersNative(t *testing.T) {
	n := newNode(t, 4)
	n.stop(t)
	n.oci, n.snapshotter = currentRunc(t), daemon.Native
	n.start(t)
	cfg, c := n.usersConfig(7, "main", "write", "/new", "x", "owner", "/", "owner", "/prog", "owner", "/new", "owner", "/image/prog",
		"put", "/image/new", "x", "wait")
	users := c.Linux.SecurityContext.NamespaceOptions.UsernsOptions
	c.Mounts = []*api.Mount{{ContainerPath: "/image", Image: &api.ImageSpec{Image: crisuite.ImageRef}, UidMappings: users.Uids, GidMappings: users.Gids}}
	s, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	id := n.startIn(t, s.PodSandboxId, cfg, c)
	log := filepath.Join(cfg.LogDirectory, c.LogPath)
	eventually(t, "it waits", func() bool { b, _ := os.ReadFile(log); return strings.Contains(string(b), "waiting") })
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(b), " F 0 0\n") != 4 || !strings.Contains(string(b), "put: open /image/new: read-only") {
		t.Errorf("it printed\n%s", b)
	}
	st, err := os.Stat(filepath.Join(n.dir, "state", "containers", id, "rootfs", "new"))
	if err != nil {
		t.Fatal(err)
	}
	if sys := st.Sys().(*syscall.Stat_t); sys.Uid != 0 {
		t.Errorf("on the disk its file belongs to %d", sys.Uid)
	}
}
