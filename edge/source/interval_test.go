package source

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCheckInterval checks that a directory is checked less often only while inotify reports all changes.
func TestCheckInterval(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	target := filepath.Join(t.TempDir(), "target.yaml")
	for _, name := range []string{filepath.Join(dir, "a.yaml"), target} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || !localFileSystems[uint32(fs.Type)] {
		t.Skipf("the temporary directory is on a file system of type %x: %v", fs.Type, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	open := func(path string) *watch {
		w := newWatch(path, slog.New(slog.DiscardHandler))
		t.Cleanup(w.close)
		w.updateWatches()
		return w
	}
	check := func(what, path string, delivered bool, interval, want time.Duration) {
		t.Helper()
		d := &Directory{DirectoryConfig: DirectoryConfig{Path: path, Interval: interval}, delivered: delivered}
		if got := d.checkInterval(open(path)); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("the default", dir, true, 20*time.Second, time.Minute)
	check("a short interval", dir, true, time.Second, 3*time.Second)
	check("a long interval", dir, true, time.Hour, time.Hour)
	check("the last update failed", dir, false, 20*time.Second, 20*time.Second)
	check("a linked directory", link, true, 20*time.Second, 20*time.Second)
	check("a missing directory", dir+"x", true, 20*time.Second, 20*time.Second)
	check("a file", target, true, 20*time.Second, 20*time.Second)
	d := &Directory{DirectoryConfig: DirectoryConfig{Path: dir, Interval: time.Second}, delivered: true}
	if got := d.checkInterval(&watch{path: dir}); got != time.Second {
		t.Errorf("without inotify: %v", got)
	}
	if err := os.Symlink(target, filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	check("a linked manifest", dir, true, 20*time.Second, 20*time.Second)
}
