package server

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// mountSilent mounts a FUSE file system whose daemon never responds. The returned function ends the daemon.
func mountSilent(t *testing.T, dir string) (end func()) {
	t.Helper()
	daemon, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("FUSE is needed: ", err)
	}
	if err := unix.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", daemon)); err != nil {
		unix.Close(daemon)
		t.Skip("FUSE is needed: ", err)
	}
	end = func() {
		if daemon >= 0 {
			unix.Close(daemon) // blocked calls return an error
			daemon = -1
		}
	}
	t.Cleanup(func() {
		end()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return end
}

// TestSilentVolume checks containers with a volume that does not respond. Their starts fail after the timeout, also repeatedly without
// further threads, and do not block other containers. When the volume's daemon has ended, nothing is left.
func TestSilentVolume(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	volume, good, bundle := t.TempDir(), t.TempDir(), t.TempDir()
	end := mountSilent(t, volume)
	h := &Host{volumes: newVolumeCalls(), namespace: "/proc/self/ns/mnt"}
	h.volumes.timeout = 200 * time.Millisecond
	var err error
	if h.root, err = os.Open("/"); err != nil {
		t.Fatal(err)
	}
	defer h.root.Close()
	below := filepath.Join(volume, "directory")
	for range 3 {
		for _, m := range []wire.Mounts{{Borrow: map[string]string{"b": below}}, {Same: []string{below}}} {
			if _, err := h.copyMounts(bundle, m); err == nil || !strings.Contains(err.Error(), below) {
				t.Errorf("%+v: %v", m, err)
			}
		}
		h.volumes.timeout = time.Hour // the next calls must not wait
	}
	unmount, err := h.copyMounts(bundle, wire.Mounts{Borrow: map[string]string{"g": good, "root of the volume": volume}, Same: []string{good}})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(good); err != nil || !os.SameFile(st, must(os.Stat(filepath.Join(bundle, "g")))) {
		t.Errorf("the copy is another directory: %v", err)
	}
	unmount()
	end()
	for silent := 1; silent > 0; runtime.Gosched() {
		h.volumes.mu.Lock()
		silent = len(h.volumes.silent)
		h.volumes.mu.Unlock()
	}
	mounts := string(must(os.ReadFile("/proc/self/mountinfo")))
	if strings.Contains(mounts, bundle) {
		t.Errorf("mounts are left:\n%s", mounts)
	}
}
