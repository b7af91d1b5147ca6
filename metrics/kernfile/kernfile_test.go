package kernfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRead checks that files of all lengths up to the limit are read completely. For a longer file, Read returns the beginning and an
// error.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	b := Get()
	defer b.Put()
	for _, n := range []int{0, 1, minPart - 1, minPart, minPart + 1, initialSize - 1, initialSize, initialSize + 1, 3 * initialSize} {
		want := bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
		name := filepath.Join(dir, "file")
		if err := os.WriteFile(name, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := b.File(4*initialSize, dir, "/", "file"); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes are %d: %v", n, len(got), err)
		}
		if n == 0 {
			continue
		}
		if got, err := b.File(n-1, name); !errors.Is(err, ErrLong) || !bytes.Equal(got, want[:n-1]) {
			t.Errorf("of %d bytes but one there are %d: %v", n, len(got), err)
		}
	}
}

// TestOpen checks that a missing file and a symlink cause specific errors. Reading a directory must fail.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/dev/null", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	b := Get()
	defer b.Put()
	for name, want := range map[string]error{"none": unix.ENOENT, "link": unix.ELOOP, ".": unix.EISDIR} {
		if text, err := b.File(initialSize, dir, "/", name); !errors.Is(err, want) || len(text) > 0 {
			t.Errorf("%s: %q, %v, want %v", name, text, err, want)
		}
	}
}

// TestPut checks that the memory for a very long file is not kept.
func TestPut(t *testing.T) {
	b := Get()
	b.b = make([]byte, maxKept)
	b.Put()
	for range 10 {
		if again := Get(); again == b {
			t.Fatal("it is kept")
		}
	}
}

// TestAllocs checks that reading a file again does not allocate memory.
func TestAllocs(t *testing.T) {
	b := Get()
	defer b.Put()
	if n := testing.AllocsPerRun(100, func() {
		if text, err := b.File(initialSize, "/proc", "/self", "/stat"); err != nil || len(text) == 0 {
			t.Fatalf("%q, %v", text, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
