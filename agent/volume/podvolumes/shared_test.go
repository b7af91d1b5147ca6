package podvolumes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// sharedHost returns a directory of a host and the host's Volumes. The host has shared mounts, as systemd sets them up. Another file system
// is mounted at data/disk.
func sharedHost(t *testing.T) (dir string, v *Volumes) {
	t.Helper()
	root := t.TempDir()
	tmpfs(t, root)
	if err := unix.Mount("", root, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Mount("", root, "", unix.MS_REC|unix.MS_PRIVATE, "")
		unix.Unmount(root, unix.MNT_DETACH)
	})
	dir = filepath.Join(root, "host")
	tmpfs(t, filepath.Join(dir, "data/disk"))
	write(t, filepath.Join(dir, "data/disk/kept"), "x")
	v, err := New(Config{Root: filepath.Join(root, "islet"), Hostname: func(*v1.Pod) (string, string) { return "h", "" }})
	if err != nil {
		t.Fatal(err)
	}
	return dir, v
}

func tmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
}

func mountTable(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		all = append(all, f[2]+" "+f[3]+" at "+f[4])
	}
	slices.Sort(all)
	return all
}

// TestHostKeepsItsMounts checks that pods that mount directories of the host do not change the host's mounts. The directories contain
// mounts. The test covers each mount propagation.
func TestHostKeepsItsMounts(t *testing.T) {
	for _, p := range []v1.MountPropagationMode{"", v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional} {
		for _, sub := range []string{"", "data", "data/disk"} {
			t.Run(strings.Join([]string{"propagation", string(p), "sub", sub}, " "), func(t *testing.T) {
				dir, v := sharedHost(t)
				before := mountTable(t)
				m := v1.VolumeMount{Name: "h", MountPath: "/h", SubPath: sub}
				if p != "" {
					m.MountPropagation = &p
				}
				pod := podWith(host("h", dir, ""))
				for range 2 { // the second run is the container's second attempt
					if _, err := mountsOf(t, v, pod, m); err != nil {
						t.Fatal(err)
					}
				}
				late := filepath.Join(dir, "data/disk/late") // the host mounts this file system while the pod runs
				tmpfs(t, late)
				if sub == "data" {
					below := filepath.Join(v.podDir("u1"), "volume-subpaths/h/c/0")
					if _, err := os.Stat(below + "/disk/kept"); err == nil {
						t.Error("the subPath was mounted with the mounts below it")
					}
				}
				if err := v.Release(t.Context(), "u1"); err != nil {
					t.Fatal(err)
				}
				requireGone(t, v.podDir("u1"))
				if err := unix.Unmount(late, unix.MNT_DETACH); err != nil {
					t.Errorf("the host's new mount: %v", err)
				}
				if after := mountTable(t); !slices.Equal(after, before) {
					t.Errorf("mounts before\n%s\nand after\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
				}
				if _, err := os.Stat(filepath.Join(dir, "data/disk/kept")); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestReleaseStopsAtWhatStaysMounted checks that Release keeps the directory and the files of a mount that cannot be unmounted.
func TestReleaseStopsAtWhatStaysMounted(t *testing.T) {
	dir, v := sharedHost(t)
	both := v1.MountPropagationBidirectional
	if _, err := mountsOf(t, v, podWith(host("h", dir, "")), v1.VolumeMount{Name: "h", MountPath: "/h", SubPath: "data", MountPropagation: &both}); err != nil {
		t.Fatal(err)
	}
	tmpfs(t, filepath.Join(dir, "data")) // this mount also covers the pod's mount, because the mounts are shared
	write(t, filepath.Join(dir, "data/kept"), "x")
	if err := v.Release(t.Context(), "u1"); err == nil {
		t.Error("released")
	}
	if _, err := os.Stat(filepath.Join(dir, "data/kept")); err != nil {
		t.Error(err)
	}
	if err := unix.Unmount(filepath.Join(dir, "data"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := v.Release(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
}

// TestContentStopsAtMounts checks that the removal of a volume's old files does not remove the files of a file system that is mounted in
// the volume.
func TestContentStopsAtMounts(t *testing.T) {
	dir := t.TempDir()
	if err := (files{"a": {data: []byte("1"), mode: 0o644}}).write(dir, -1); err != nil {
		t.Fatal(err)
	}
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(dir, old, "m")
	tmpfs(t, there)
	defer unix.Unmount(there, unix.MNT_DETACH)
	write(t, there+"/kept", "x")
	if err := (files{"a": {data: []byte("2"), mode: 0o644}}).write(dir, -1); err == nil {
		t.Error("the old files were removed together with the mounted ones")
	}
	if _, err := os.Stat(there + "/kept"); err != nil {
		t.Error(err)
	}
}
