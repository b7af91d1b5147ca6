package crilog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBatch checks that lines that are written with one call are rotated at the same lines as lines that are written one by one.
func TestBatch(t *testing.T) {
	var lines [][]byte
	for i := range 2000 {
		lines = append(lines, fmt.Appendf(nil, "%d%s\n", i, strings.Repeat("x", i*7919%200)))
	}
	files := func(o Options, writes [][]byte) (contents []string) {
		l, path := open(t, o)
		s := l.Stream("stdout")
		for _, p := range writes {
			if _, err := s.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		paths, err := rotatedPaths(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range append(paths, path) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if o.MaxBytes > 0 && int64(len(b)) > o.MaxBytes {
				t.Errorf("%d bytes, limit %d", len(b), o.MaxBytes)
			}
			contents = append(contents, string(b))
		}
		return contents
	}
	for _, size := range []int64{0, 500, 5000, 100_000} {
		o := Options{MaxBytes: size, MaxFiles: 4}
		if one, all := files(o, lines), files(o, [][]byte{bytes.Join(lines, nil)}); !slices.Equal(one, all) {
			t.Errorf("%d bytes: %d files one by one, %d files with one call, or other lines", size, len(one), len(all))
		}
	}
}

// TestEmptyLines checks that a container whose output costs little for each line of the log does not occupy the shim with calls of
// write(2), which would delay the output of other containers. A read of its output has up to 16 KiB.
func TestEmptyLines(t *testing.T) {
	l, path := open(t, Options{MaxBytes: 10 << 20, MaxFiles: 5})
	before := writes(t)
	if _, err := l.Stream("stdout").Write(bytes.Repeat([]byte("\n"), 16<<10)); err != nil {
		t.Fatal(err)
	}
	if n := writes(t) - before; n > 200 {
		t.Errorf("%d calls of write(2)", n)
	}
	if b, err := os.ReadFile(path); err != nil || bytes.Count(b, []byte(" stdout F \n")) != 16<<10 {
		t.Errorf("the log has %d bytes, %v", len(b), err)
	}
}

// TestIdleBuffer checks that a log keeps only a small buffer, also after large writes.
func TestIdleBuffer(t *testing.T) {
	l, _ := open(t, Options{})
	for _, size := range []int{1, 100, 600, 5000, 16 << 10} {
		for _, line := range []string{"\n", strings.Repeat("x", size) + "\n"} {
			if _, err := l.Stream("stdout").Write(bytes.Repeat([]byte(line), max(1, size/len(line)))); err != nil {
				t.Fatal(err)
			}
			if cap(l.buf) > 1<<10 {
				t.Errorf("%d bytes are kept", cap(l.buf))
			}
		}
	}
}

// TestFullDisk checks that a log on a full disk has complete lines only, and continues when there is room again.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("needs a small file system: ", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 32<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "0.log")
	l, err := Open(path, Options{Now: fixed})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := l.Stream("stdout")
	if _, err := s.Write(bytes.Repeat([]byte("a line of the log\n"), 2000)); err == nil {
		t.Error("the disk is not full")
	}
	complete := func() (n int) {
		b, err := os.ReadFile(path)
		if err != nil || len(b) == 0 || int64(len(b)) != l.size {
			t.Fatalf("the log has %d bytes, it counts %d: %v", len(b), l.size, err)
		}
		for line := range bytes.Lines(b) {
			if !bytes.HasSuffix(line, []byte(" stdout F a line of the log\n")) {
				t.Fatalf("line %q", line)
			}
			n++
		}
		return n
	}
	before := complete()
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("a line of the log\n")); err != nil {
		t.Error(err)
	}
	if after := complete(); after != before+1 {
		t.Errorf("%d lines, before %d", after, before)
	}
}
