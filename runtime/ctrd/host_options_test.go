package ctrd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestHostOptions checks that the mount of a container keeps the restrictions of the host's mount. The options of the container's mount do
// not matter.
func TestHostOptions(t *testing.T) {
	const (
		hardened = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME
		none     = 0
	)
	for _, n := range []*node{newNode(t, 4), newUsersNode(t, 4)} {
		host := filepath.Join(n.dir, "host")
		for _, c := range []struct {
			flags uintptr
			want  []string
			never string
		}{
			{hardened | unix.MS_RDONLY, []string{"ro", "nosuid", "nodev", "noexec", "noatime"}, "rw"},
			{hardened, []string{"rw", "nosuid", "nodev", "noexec", "noatime"}, "ro"},
			{unix.MS_NODEV, []string{"rw", "nodev"}, "nosuid"},
			{none, []string{"rw"}, "nosuid"},
		} {
			mountHost(t, host, c.flags)
			ctr := containerConfig("main", "wait")
			ctr.Mounts = []*api.Mount{
				{ContainerPath: "/plain", HostPath: host},
				{ContainerPath: "/link", HostPath: host + ".link"},
				{ContainerPath: "/file", HostPath: filepath.Join(host, "file")},
				{ContainerPath: "/options", HostPath: host, MountOptions: []string{"noexec"}},
				{ContainerPath: "/read", HostPath: host, Readonly: true},
			}
			sandbox, id := n.runContainer(t, 7, ctr)
			out, err := n.ExecSync(context.Background(), &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "read", "/proc/self/mountinfo"}, Timeout: 20})
			if err != nil {
				t.Fatal(err)
			}
			has := map[string][]string{}
			for line := range strings.Lines(string(out.GetStdout())) {
				if f := strings.Fields(line); len(f) > 5 {
					has[f[4]] = strings.Split(f[5], ",")
				}
			}
			for _, m := range ctr.Mounts {
				got := has[m.ContainerPath]
				for _, o := range c.want {
					if o == "rw" && m.Readonly {
						o = "ro"
					}
					if !slices.Contains(got, o) {
						t.Errorf("host %#x: %s has the options %q, without %s", c.flags, m.ContainerPath, got, o)
					}
				}
				if slices.Contains(got, c.never) && !(m.Readonly && c.never == "ro") {
					t.Errorf("host %#x: %s has the options %q", c.flags, m.ContainerPath, got)
				}
			}
			if _, err := n.RemovePodSandbox(context.Background(), &api.RemovePodSandboxRequest{PodSandboxId: sandbox}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// mountHost mounts a directory with the given mount flags. The directory contains a file and a symlink.
func mountHost(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	unix.Unmount(dir, unix.MNT_DETACH)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("t", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(fmt.Errorf("remount: %w", err))
	}
	if err := os.Symlink(dir, dir+".link"); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
}
