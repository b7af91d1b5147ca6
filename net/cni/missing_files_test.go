package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMissingFileAppears checks that Changed is called as soon as a missing file exists. The directories of the file may be created later.
// When the file exists, no directory is watched any more.
func TestMissingFileAppears(t *testing.T) {
	for name, sub := range map[string]string{"in a directory": "subnet.env", "in new directories": "flannel/net/subnet.env"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), sub)
			m, appeared := newMissingFiles(), make(chan struct{}, 8)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				m.run(ctx, func() { appeared <- struct{}{} }, slog.New(slog.DiscardHandler))
			}()
			m.addMissing(fmt.Errorf(`plugin type="flannel" failed (add): loadFlannelSubnetEnv failed: open %s: no such file or directory`, path))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("FLANNEL_MTU=1450"), 0o600); err != nil {
				t.Fatal(err)
			}
			select {
			case <-appeared:
			case <-time.After(missingTime / 2):
				t.Fatal("appeared was not called")
			}
			if _, waiting := m.removeAppeared(); len(waiting) != 0 {
				t.Error(waiting)
			}
			cancel()
			<-ended
		})
	}
}

// TestMissingFiles checks which paths are taken from the error messages of plugins. The number and the length of the paths are limited. A
// file that exists is not watched, because its pod would then be retried without a pause.
func TestMissingFiles(t *testing.T) {
	for text, want := range map[string]string{
		"open /run/flannel/subnet.env: no such file or directory. Check the pod":    "/run/flannel/subnet.env",
		"stat /var/lib/calico/nodename: no such file or directory: check that":      "/var/lib/calico/nodename",
		"dial unix /var/run/cilium/cilium.sock: connect: no such file or directory": "/var/run/cilium/cilium.sock",
		`"/run/../run/x/y": no such file or directory`:                              "",
		"open /run/a/../b: no such file or directory":                               "/run/b",
		"open /proc/1/ns/net: no such file or directory":                            "",
		"open /sys/class/net/eth9: no such file or directory":                       "",
		"open relative: no such file or directory":                                  "",
		"permission denied": "",
		"open /" + strings.Repeat("x", 2*maxPathLength) + ": no such file or directory": "",
		strings.Repeat("x", maxErrorText) + " /run/late: no such file or directory":     "",
	} {
		m := newMissingFiles()
		m.addMissing(errors.New(text))
		got := ""
		for _, f := range m.paths {
			got += f.path
		}
		if got != want {
			t.Errorf("%.80s: %q, not %q", text, got, want)
		}
	}
	m := newMissingFiles()
	m.addMissing(fmt.Errorf("fork/exec %s: no such file or directory", t.TempDir()))
	if len(m.paths) != 0 {
		t.Error("waits for an existing file")
	}
	for i := range 10 * maxMissing {
		m.addMissing(fmt.Errorf("open /missing/%d: no such file or directory", i))
		m.addMissing(errors.New("open /missing/again: no such file or directory"))
	}
	if len(m.paths) != maxMissing {
		t.Errorf("%d paths", len(m.paths))
	}
}
