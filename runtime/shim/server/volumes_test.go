package server

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/fusetest"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// TestSilentVolume checks containers with a volume that does not respond. Their starts fail after the timeout, also repeatedly without
// further threads, and do not block other containers. When the volume's daemon has ended, nothing is left.
func TestSilentVolume(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	volume, good, bundle := t.TempDir(), t.TempDir(), t.TempDir()
	end := fusetest.MountSilent(t, volume)
	h := &Host{volumes: newVolumeCalls(), namespace: "/proc/self/ns/mnt"}
	h.volumes.timeout = 3 * time.Second // a busy machine must reach the volume within it
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
	unmount, err := h.copyMounts(bundle, wire.Mounts{Borrow: map[string]string{"g": good}, Same: []string{good}})
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
