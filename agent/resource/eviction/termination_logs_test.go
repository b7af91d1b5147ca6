package eviction

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestCut checks that a termination log that uses too much disk space is reduced to its end. Its writer may append to the file or write at
// its own offset. The log's blocks may also lie beyond the end of the file.
func TestCut(t *testing.T) {
	pods := t.TempDir()
	dir := filepath.Join(pods, "u1", "containers", "c")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	last := []byte("last words")
	large := append(bytes.Repeat([]byte("x"), 8<<20), last...)
	put := func(name string, b []byte) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err == nil {
			_, err = f.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	f := put("0", large)
	put("1", []byte("short"))
	beyond := put("2", last)
	if err := fallocate(beyond, 8<<20); err != nil {
		t.Skip("fallocate is not supported: ", err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "3")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := cutTerminationLogs(pods); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(large); err != nil { // this write begins at the file's offset
			t.Fatal(err)
		}
	}
	if err := cutTerminationLogs(pods); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"0": last, "1": []byte("short"), "2": last} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if diskUse(st) > maxTerminationLog {
			t.Errorf("%s has %d bytes on disk", name, diskUse(st))
		}
		if f, err := os.Open(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		} else {
			end := make([]byte, 4096)
			n, err := f.ReadAt(end, max(st.Size()-4096, 0))
			if err != nil && err != io.EOF || !bytes.HasSuffix(end[:n], want) {
				t.Errorf("%s ends with %q, %v", name, end[max(n-20, 0):n], err)
			}
			f.Close()
		}
	}
}

// TestCutsAsDiskFills checks that termination logs are checked once at the start, and later only after the usage of the disk has grown.
func TestCutsAsDiskFills(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods", "u1", "containers", "c", "0")
	large := bytes.Repeat([]byte("x"), 1<<20)
	fill := func(t *testing.T) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, large, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	short := func(t *testing.T) bool {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return diskUse(st) <= maxTerminationLog
	}
	fill(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.disk = 900 })
		w.terminationLogs.pods = filepath.Join(path, "../../../..")
		w.start(t)
		if !short(t) { // the starting agent does not know the former usage of the disk
			t.Error("the log is not truncated at the start")
		}
		fill(t)
		sleepFor(maxInterval)
		if short(t) {
			t.Error("the log is truncated although the usage of the disk is unchanged")
		}
		w.set(func() { w.disk = 800 })
		sleepFor(maxInterval)
		if !short(t) {
			t.Error("the log is not truncated")
		}
	})
}

func sleepFor(d time.Duration) {
	time.Sleep(d) // in the bubble's time
	synctest.Wait()
}

// fallocate allocates blocks beyond the end of a file.
func fallocate(f *os.File, size int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
}
