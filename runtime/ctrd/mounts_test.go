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

	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

// amongSharedMounts runs the tests in a mount namespace of their own. Its mounts are shared, as on a host with systemd. Therefore shims get
// their own mount namespaces. The host is not affected.
func amongSharedMounts(run func() int) int {
	if os.Getuid() != 0 {
		return run()
	}
	return mountstest.Main(func() int {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
			fmt.Fprintln(os.Stderr, "make mounts shared:", err)
			return 1
		}
		return run()
	})
}

// TestShimSeesNoMountsOfPods checks that the mounts of pods are not visible in the shim. The root file systems of running containers are
// not mounted on the host.
func TestShimSeesNoMountsOfPods(t *testing.T) {
	n := newNode(t, 16)
	volumes := filepath.Join(n.dir, "pods")
	for i := range 3 {
		n.runPod(t, i, "wait")
	}
	shim := n.shimProcess(t, "1")
	if shim == 0 {
		t.Fatal("no shim runs")
	}
	for _, line := range mountTable(t, fmt.Sprintf("/proc/%d/mountinfo", shim)) {
		for _, dir := range []string{n.run + "/b", n.run + "/ns", n.run + "/sandboxes", volumes} {
			if at := strings.Fields(line)[4]; at == dir || strings.HasPrefix(at, dir+"/") {
				t.Errorf("the shim sees a mount of a pod: %s", line)
			}
		}
	}
	for _, line := range mountTable(t, "/proc/self/mountinfo") {
		if strings.HasSuffix(strings.Fields(line)[4], "/rootfs") {
			t.Errorf("the root file system of a running container is mounted on the host: %s", line)
		}
	}
}

// TestLentMounts checks that a pod's mounts on the host are visible in its containers, including nested mounts. The mounts still exist on
// the host after the containers have ended.
func TestLentMounts(t *testing.T) {
	n := newNode(t, 16)
	volume := filepath.Join(n.dir, "pods", "u", "volumes", "memory")
	deep := filepath.Join(volume, "deep")
	for _, dir := range []string{volume, deep} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("t", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(filepath.Base(dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(n.dir, "link")
	if err := os.Symlink(volume, link); err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(n.dir, "late")
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	pods := filepath.Join(n.dir, "pods")
	for name, mount := range map[string]struct {
		*api.Mount
		file, content string
	}{
		"volume":    {&api.Mount{HostPath: volume, ContainerPath: "/v"}, "/v/file", "memory"},
		"below":     {&api.Mount{HostPath: volume, ContainerPath: "/v"}, "/v/deep/file", "deep"},
		"link":      {&api.Mount{HostPath: link, ContainerPath: "/v"}, "/v/file", "memory"},
		"one file":  {&api.Mount{HostPath: filepath.Join(volume, "file"), ContainerPath: "/f"}, "/f", "memory"},
		"all pods":  {&api.Mount{HostPath: pods, ContainerPath: "/p"}, "/p/u/volumes/memory/deep/file", "deep"},
		"above":     {&api.Mount{HostPath: n.dir, ContainerPath: "/p"}, "/p/pods/u/volumes/memory/file", "memory"},
		"slave":     {&api.Mount{HostPath: volume, ContainerPath: "/v", Propagation: api.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}, "/v/deep/file", "deep"},
		"unshared":  {&api.Mount{HostPath: late, ContainerPath: "/l"}, "/l/file", "late"},
		"read-only": {&api.Mount{HostPath: volume, ContainerPath: "/v", Readonly: true}, "/v/file", "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "unshared" { // is not propagated to a shim
				for _, m := range []struct {
					source, kind string
					flags        uintptr
				}{{late, "", unix.MS_BIND}, {"", "", unix.MS_PRIVATE}, {"t", "tmpfs", 0}} {
					if err := unix.Mount(m.source, late, m.kind, m.flags, ""); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { unix.Unmount(late, unix.MNT_DETACH) })
				}
				if err := os.WriteFile(filepath.Join(late, "file"), []byte("late"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			before := mountTable(t, "/proc/self/mountinfo")
			ctr := containerConfig("main", "wait")
			ctr.Mounts = []*api.Mount{mount.Mount}
			sandbox, id := n.runContainer(t, 7, ctr)
			out, err := n.ExecSync(context.Background(), &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "read", mount.file}, Timeout: 20})
			if err != nil || strings.TrimSpace(string(out.GetStdout())) != mount.content {
				t.Errorf("the container reads %q from %s: %v %s", out.GetStdout(), mount.file, err, out.GetStderr())
			}
			if _, err := n.RemovePodSandbox(context.Background(), &api.RemovePodSandboxRequest{PodSandboxId: sandbox}); err != nil {
				t.Fatal(err)
			}
			if after := mountTable(t, "/proc/self/mountinfo"); strings.Join(before, "\n") != strings.Join(after, "\n") {
				t.Errorf("the host's mounts have changed from\n%s\nto\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
		})
	}
}

func mountTable(t testing.TB, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}
