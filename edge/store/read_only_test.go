package store

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadOnlyDisk checks a store on a read-only disk. The store reads all rows, including the rows in the -wal file. It accepts changes
// and keeps them in memory. Health reports the read-only disk. The files are not modified.
func TestReadOnlyDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	db, wal := furnished(t)
	want := readBySQLite(t, db, wal)
	dir := t.TempDir()
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	path := filepath.Join(dir, "islet.db")
	must(t, os.WriteFile(path, db, 0o600))
	must(t, os.WriteFile(path+"-wal", wal, 0o600))
	must(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	var log bytes.Buffer
	s, err := Open(t.Context(), path, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	got := rowsOf(t, s.db)
	if a, b := without(want, got), without(got, want); len(a)+len(b) > 0 {
		t.Errorf("missing %q, too many %q", a, b)
	}
	h := s.Health()
	if _, rebuilt := s.Rebuilt(); rebuilt || !strings.Contains(h.Volatile, path) || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("%+v, log %q", h, log.String())
	}
	works(t, s)
	must(t, s.AddLease(t.Context(), netip.MustParseAddr("10.1.1.1"), "new"))
	must(t, s.Reject(t.Context(), "u", Admission{Reason: "r", Message: "m"}))
	must(t, s.Close())
	for suffix, data := range map[string][]byte{"": db, "-wal": wal} {
		if now, err := os.ReadFile(path + suffix); err != nil || !bytes.Equal(now, data) {
			t.Errorf("%s was changed: %v", path+suffix, err)
		}
	}
}

// TestDiskTurnsReadOnly checks that an open store keeps all rows and works after its disk has become read-only.
func TestDiskTurnsReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	filled(t, path, 10, true)
	s := open(t, path)
	must(t, s.UpdatePods(t.Context(), []Pod{pod("y", "y")}, nil))
	before, err := os.ReadFile(path)
	must(t, err)
	done := make(chan bool, 1)
	s.repairs <- repair{syscall.EROFS, done}
	if !<-done {
		t.Fatal("not repaired")
	}
	works(t, s)
	if pods, err := s.Pods(t.Context()); err != nil || len(pods) != 12 {
		t.Errorf("%d pods, %v", len(pods), err)
	}
	if h := s.Health(); h.Volatile == "" || h.Aside != "" {
		t.Errorf("%+v", h)
	}
	must(t, s.UpdatePods(t.Context(), []Pod{pod("x", "x")}, nil))
	if _, err := os.ReadFile(path); err != nil || len(before) == 0 {
		t.Error("the file is gone", err)
	}
}
