package ctrd

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/disktest"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// endedContainer records the end of a container in the directory dir, and returns the record that was read from there. The configuration of
// its sandbox is larger than a block of the disk.
func endedContainer(t *testing.T, dir string, created time.Time, before func()) (containerRecord, bool) {
	t.Helper()
	s := &sandbox{
		rec:    sandboxRecord{Format: plainFormat, ID: "s", CreatedAt: created},
		config: &api.PodSandboxConfig{Hostname: strings.Repeat("h", 64<<10)},
	}
	c := &container{rec: containerRecord{Format: plainFormat, ID: "c", Sandbox: "s"}, done: make(chan struct{})}
	r := &Runtime{
		log: slog.New(slog.DiscardHandler), dirs: dirs{containers: dir},
		sandboxes: map[string]*sandbox{"s": s}, containers: map[string]*container{"c": c},
	}
	if err := os.Mkdir(filepath.Join(dir, "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := createRecord(r.recordPath("c"), c.rec); err != nil {
		t.Fatal(err)
	}
	before()
	recorded := r.recordEnd(c, wire.Exit{Code: 7, FinishedAt: time.Now()}, "Error", "")
	var got containerRecord
	if err := readRecord(r.recordPath("c"), &got); err != nil {
		t.Fatal(err)
	}
	return got, recorded
}

// TestEndContainsSandbox checks that the end of a container contains the record of its sandbox only if the sandbox is young. The kernel has
// already written the record of an older sandbox to the disk.
func TestEndContainsSandbox(t *testing.T) {
	for age, want := range map[time.Duration]bool{0: true, writtenAfter + time.Minute: false} {
		got, recorded := endedContainer(t, t.TempDir(), time.Now().Add(-age), func() {})
		if !recorded || got.ExitCode != 7 || (got.PodSandbox != nil) != want {
			t.Errorf("a sandbox of %s: recorded %t, %.200v", age, recorded, got)
		}
	}
}

// TestEndOnFullDisk checks the end of a container on a disk that has room for the end, but not for the record of the sandbox.
func TestEndOnFullDisk(t *testing.T) {
	disk := disktest.New(t)
	got, recorded := endedContainer(t, disk.Dir, time.Now(), disk.Fill)
	if !recorded || got.ExitCode != 7 || got.FinishedAt.IsZero() || got.PodSandbox != nil {
		t.Errorf("recorded %t, %.200v", recorded, got)
	}
}
