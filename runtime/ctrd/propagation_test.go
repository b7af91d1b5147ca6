package ctrd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestPropagation checks a mount with a propagation that cannot work, such as a host path in a private mount. The container is rejected,
// and the error contains the mount. In all other cases, the container sees a new mount on the host exactly if the mount propagates.
func TestPropagation(t *testing.T) {
	n := newNode(t, 4)
	cfg := n.podConfig(1)
	pod, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	const both, in = api.MountPropagation_PROPAGATION_BIDIRECTIONAL, api.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	for i, c := range []struct {
		kind        uintptr
		propagation api.MountPropagation
		wantErr     string
	}{
		{unix.MS_PRIVATE, both, "Bidirectional"}, {unix.MS_PRIVATE, in, "HostToContainer"}, {unix.MS_SLAVE, both, "not shared"}, {unix.MS_SLAVE, in, ""},
		{unix.MS_SHARED, both, ""}, {unix.MS_SHARED, in, ""}, {unix.MS_PRIVATE, api.MountPropagation_PROPAGATION_PRIVATE, ""},
	} {
		host := filepath.Join(n.dir, fmt.Sprint("host", i))
		if err := os.Mkdir(host, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(host, host, "", unix.MS_BIND, ""); err != nil { // a bind mount of a shared mount is shared too
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(host, unix.MNT_DETACH) })
		if err := unix.Mount("", host, "", c.kind, ""); err != nil {
			t.Fatal(err)
		}
		inside := filepath.Join(host, "new", "dir") // the runtime creates this directory
		ctr := containerConfig(fmt.Sprint("main", i), "wait")
		ctr.Mounts = []*api.Mount{{ContainerPath: "/p", HostPath: inside, Propagation: c.propagation}}
		created, err := n.CreateContainer(t.Context(), &api.CreateContainerRequest{PodSandboxId: pod.PodSandboxId, SandboxConfig: cfg, Config: ctr})
		if c.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), c.wantErr) || !strings.Contains(err.Error(), host) ||
				!strings.Contains(err.Error(), "/p ") {
				t.Errorf("case %d: %v", i, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("case %d: %v", i, err)
			continue
		}
		if _, err := n.StartContainer(t.Context(), &api.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
			t.Fatal(err)
		}
		if c.kind == unix.MS_SLAVE {
			continue // a slave mount receives mounts from its master, but sends none
		}
		n.expectReach(t, created.ContainerId, inside, c.propagation != api.MountPropagation_PROPAGATION_PRIVATE, i)
	}
}

// expectReach mounts a tmpfs on the host. It checks whether the container sees the new mount.
func (n *node) expectReach(t *testing.T, id, dir string, reaches bool, i int) {
	t.Helper()
	late := filepath.Join(dir, "late")
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("t", late, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(late, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(late, "file"), []byte("late"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := n.ExecSync(context.Background(), &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "read", "/p/late/file"}, Timeout: 20})
	if err != nil || strings.Contains(string(out.Stdout), "late") != reaches {
		t.Errorf("case %d: the container sees %q %q of the host's mount: %v", i, out.GetStdout(), out.GetStderr(), err)
	}
}
