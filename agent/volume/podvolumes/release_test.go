package podvolumes

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podtest"
)

// TestEnded checks that the volumes of a finished pod are removed: those on disk, those in memory, and the mounts of subPaths. The pod can
// be prepared again. Termination messages and host directories stay.
func TestEnded(t *testing.T) {
	v, d := volumes(t), t.TempDir()
	if err := os.MkdirAll(d+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, d+"/sub/precious", "p")
	p := podWith(emptyDirVolume("disk", ""), emptyDirVolume("mem", v1.StorageMediumMemory), host("h", d, v1.HostPathDirectory))
	for range 2 {
		mounts, err := mountsOf(t, v, p, v1.VolumeMount{Name: "disk", MountPath: "/d"}, v1.VolumeMount{Name: "h", MountPath: "/h", SubPath: "sub"})
		if err != nil {
			t.Fatal(err)
		}
		write(t, mounts[0].HostPath+"/data", "d")
		words := filepath.Join(v.podDir("u1"), "containers", "c", "0")
		if err := os.MkdirAll(filepath.Dir(words), 0o750); err != nil {
			t.Fatal(err)
		}
		write(t, words, "bye")
		for range 2 {
			if err := v.Ended(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		requireGone(t, v.podDir("u1")+"/volumes")
		requireGone(t, v.podDir("u1")+"/volume-subpaths")
		if b, err := os.ReadFile(words); err != nil || string(b) != "bye" {
			t.Errorf("the termination message is %q, %v", b, err)
		}
		if b, err := os.ReadFile(d + "/sub/precious"); err != nil || string(b) != "p" {
			t.Errorf("the host's file has %q, %v", b, err)
		}
	}
	if err := v.Ended(t.Context(), podNamed("../x")); err == nil {
		t.Error("a UID that leads out of the directory is accepted")
	}
}

// TestUnmount checks that a shutdown of the machine unmounts the volumes that track their mounts, and keeps the files of the pod.
func TestUnmount(t *testing.T) {
	s := &servedKind{t.TempDir(), make(chan struct{})}
	v, err := New(Config{Root: t.TempDir(), Hostname: func(*v1.Pod) (string, string) { return "h", "" }, Kinds: []Kind{s}})
	if err != nil {
		t.Fatal(err)
	}
	p := podWith(emptyDirVolume("disk", ""))
	mounts, err := mountsOf(t, v, p, v1.VolumeMount{Name: "disk", MountPath: "/d"})
	if err != nil {
		t.Fatal(err)
	}
	write(t, mounts[0].HostPath+"/data", "d")
	if err := v.Unmount(t.Context(), p.UID); err != nil || s.HasPod(p.UID) {
		t.Errorf("still mounted: %v, %v", s.HasPod(p.UID), err)
	}
	if b, err := os.ReadFile(mounts[0].HostPath + "/data"); err != nil || string(b) != "d" {
		t.Errorf("the file of the emptyDir is %q, %v", b, err)
	}
	if err := v.Unmount(t.Context(), "../x"); err == nil {
		t.Error("a UID that leads out of the directory is accepted")
	}
}

func podNamed(uid string) *v1.Pod {
	return podtest.New("", podtest.UID(uid))
}
