package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mountDead mounts a file system whose server has exited. Every access to it fails with ENOTCONN.
func mountDead(t *testing.T, dir string) {
	t.Helper()
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if os.IsNotExist(err) {
		t.Skip("this kernel has no FUSE")
	}
	requireNoError(t, err)
	requireNoError(t, unix.Mount("dead", dir, "fuse.dead", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	requireNoError(t, dev.Close())
	if _, err := os.Stat(dir); !errors.Is(err, unix.ENOTCONN) {
		t.Fatalf("the mount is not corrupted: %v", err)
	}
}

// TestCorruptedSubPath checks that the next start of a container replaces a bad mount of a subPath. A mount is bad if it no longer works,
// or if it shows another directory than the one that is now in the volume. A pod with such a mount can be removed.
func TestCorruptedSubPath(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, v *Volumes, target, volume string){
		"the server has ended": func(t *testing.T, _ *Volumes, target, _ string) { mountDead(t, target) },
		"the server has ended twice": func(t *testing.T, _ *Volumes, target, _ string) {
			mountDead(t, target)
			requireNoError(t, unix.Mount(target, target, "", unix.MS_BIND, ""))
		},
		"the only mount": func(t *testing.T, _ *Volumes, target, _ string) {
			requireNoError(t, unix.Unmount(target, 0))
			mountDead(t, target)
		},
		"a deleted directory": func(t *testing.T, _ *Volumes, _, volume string) {
			requireNoError(t, os.RemoveAll(filepath.Join(volume, "sub")))
		},
		"another directory": func(t *testing.T, _ *Volumes, _, volume string) {
			requireNoError(t, os.RemoveAll(filepath.Join(volume, "former")))
			requireNoError(t, os.Rename(filepath.Join(volume, "sub"), filepath.Join(volume, "former")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, p := volumes(t), podWith(emptyDirVolume("data", ""))
			t.Cleanup(func() { _ = v.Release(context.Background(), "u1") })
			m := v1.VolumeMount{Name: "data", MountPath: "/d", SubPath: "sub"}
			got, err := mountsOf(t, v, p, m)
			requireNoError(t, err)
			target, volume := got[0].HostPath, filepath.Join(v.podDir("u1"), "volumes/kubernetes.io~empty-dir/data")
			spoil(t, v, target, volume)
			if got, err = mountsOf(t, v, p, m); err != nil || got[0].HostPath != target {
				t.Fatalf("%v, %v", got, err)
			}
			write(t, filepath.Join(volume, "sub/file"), "x")
			if b, err := os.ReadFile(target + "/file"); err != nil || string(b) != "x" {
				t.Errorf("the container reads %q: %v", b, err)
			}
			spoil(t, v, target, volume)
			requireNoError(t, v.Release(t.Context(), "u1"))
			requireGone(t, v.podDir("u1"))
		})
	}
}
