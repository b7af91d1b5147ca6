package logs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A stalledWriter accepts the first bytes and then blocks until the test closes its channel.
type stalledWriter struct {
	strings.Builder
	begun, on chan struct{}
}

func (w *stalledWriter) Write(b []byte) (int, error) {
	if w.Len() == 0 {
		close(w.begun)
		<-w.on
	}
	return w.Builder.Write(b)
}

// This helper returns the names of the lines in the given output. In this log, each file has one line that is longer than all buffers.
func names(t *testing.T, out string) (names string) {
	t.Helper()
	for l := range strings.Lines(out) {
		if len(l) != 2+long {
			t.Errorf("a line has %d bytes", len(l))
		}
		names += l[:1]
	}
	return names
}

const long = maxLine + 32<<10

func longLine(name string) string {
	return time.Now().Format(time.RFC3339Nano) + " stdout F " + name + strings.Repeat("x", long)
}

// A stage is a log that consists of the rotated files a and b and the newest file c.
type stage struct {
	*testing.T
	path string
	n    int
}

func newStage(t *testing.T) *stage {
	s := &stage{T: t, path: filepath.Join(t.TempDir(), "0.log")}
	for _, name := range []string{"a", "b", "c"} {
		s.write(name)
	}
	return s
}

func (s *stage) write(name string) {
	if _, err := os.Stat(s.path); err == nil {
		s.n++
		if err := os.Rename(s.path, s.rotated(s.n)); err != nil {
			s.Fatal(err)
		}
	}
	put(s.T, s.path, longLine(name))
}

func (s *stage) rotated(n int) string { return fmt.Sprintf("%s.20261121-%06d", s.path, n) }

func (s *stage) remove(paths ...string) {
	for _, p := range paths {
		if err := os.Remove(p); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *stage) compress(n int, name string) {
	put(s.T, s.rotated(n)+".gz", longLine(name))
	s.remove(s.rotated(n))
}

// TestMissed checks that a blocked reader gets every line although the log is rotated, compressed or removed meanwhile. If a line is
// missing, the reader gets the lines before it and an error.
func TestMissed(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(s *stage)
		want      string
		err       error
	}{
		"nothing":                       {func(*stage) {}, "abc", nil},
		"the current file was removed":  {func(s *stage) { s.remove(s.rotated(1)) }, "abc", nil},
		"the next file was removed":     {func(s *stage) { s.remove(s.rotated(1), s.rotated(2)) }, "a", ErrMissed},
		"all were compressed":           {func(s *stage) { s.compress(1, "a"); s.compress(2, "b") }, "abc", nil},
		"a compressed file was removed": {func(s *stage) { s.compress(2, "b"); s.remove(s.rotated(1), s.rotated(2)+".gz") }, "a", ErrMissed},
		"rotated, and none is missing":  {func(s *stage) { s.write("d"); s.remove(s.rotated(1)) }, "abcd", nil},
		"a new file was removed":        {func(s *stage) { s.write("d"); s.write("e"); s.remove(s.rotated(1), s.rotated(2), s.rotated(3)) }, "a", ErrMissed},
		"a middle file was removed":     {func(s *stage) { s.write("d"); s.write("e"); s.remove(s.rotated(3)) }, "ab", ErrMissed},
		"all but the current file":      {func(s *stage) { s.remove(s.rotated(2), s.path) }, "a", ErrMissed},
		"a foreign file was removed": {func(s *stage) {
			put(s.T, s.path+".x.tmp", "")
			put(s.T, s.path+"x", "")
			s.remove(s.path+".x.tmp", s.path+"x")
		}, "abc", nil},
		"a compression was interrupted": {func(s *stage) { put(s.T, s.rotated(2)+".gz.tmp", ""); s.remove(s.rotated(2) + ".gz.tmp") }, "abc", nil},
	} {
		for _, follow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, follow), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				w := &stalledWriter{begun: make(chan struct{}), on: make(chan struct{})}
				done := make(chan error)
				go func() {
					done <- Read(t.Context(), s.path, Options{Follow: follow, Tail: -1}, func(context.Context) bool { return true }, w)
				}()
				<-w.begun
				c.meanwhile(s)
				close(w.on)
				if err := <-done; !errors.Is(err, c.err) || names(t, w.String()) != c.want {
					t.Errorf("got %q, %v; want %q, %v", names(t, w.String()), err, c.want, c.err)
				}
			})
		}
	}
}

func TestDamaged(t *testing.T) {
	for name, cut := range map[string]func([]byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"no gzip":   func([]byte) []byte { return []byte("this is not gzip") },
		"cut short": func(b []byte) []byte { return b[:len(b)/2] },
		"changed":   func(b []byte) []byte { b[len(b)/2] ^= 0xff; return b },
	} {
		for _, o := range []Options{{Tail: -1}, {Tail: 9}, {Tail: -1, Follow: true}} {
			s := newStage(t)
			s.compress(2, "b")
			b, err := os.ReadFile(s.rotated(2) + ".gz")
			if err == nil {
				err = os.WriteFile(s.rotated(2)+".gz", cut(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err = Read(t.Context(), s.path, o, func(context.Context) bool { return true }, &out)
			if err == nil || !strings.Contains(err.Error(), filepath.Base(s.rotated(2))) || !strings.Contains(out.String(), "a") ||
				!strings.Contains(out.String(), "c") {
				t.Errorf("%s, %+v: %v, %d bytes", name, o, err, out.Len())
			}
		}
	}
}

// TestManyDamaged checks that the error names only the first damaged file. A pod that mounts the log directory can
// damage any number of files.
func TestManyDamaged(t *testing.T) {
	s := newStage(t)
	for i := range 200 {
		if err := os.WriteFile(s.rotated(100+i)+".gz", []byte("this is not gzip"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := Read(t.Context(), s.path, Options{Tail: -1}, func(context.Context) bool { return true }, io.Discard)
	if err == nil || strings.Count(err.Error(), "damaged") != 1 {
		t.Errorf("%.300v", err)
	}
}

// TestRemoved checks what Read returns when the log is removed: no error if the container has exited, and otherwise ErrRemoved.
func TestRemoved(t *testing.T) {
	for _, ended := range []bool{false, true} {
		s := newStage(t)
		w := &stalledWriter{begun: make(chan struct{}), on: make(chan struct{})}
		done := make(chan error)
		go func() {
			done <- Read(t.Context(), s.path, Options{Follow: true, Tail: 1}, func(context.Context) bool { return ended }, w)
		}()
		<-w.begun
		s.remove(s.path)
		close(w.on)
		want := error(ErrRemoved)
		if ended {
			want = nil
		}
		if err := <-done; !errors.Is(err, want) || names(t, w.String()) != "c" {
			t.Errorf("ended %v: %v, %q", ended, err, names(t, w.String()))
		}
	}
}

// TestMissedBlind checks a reader that has no watch or whose watch has lost events. Such a reader reports missing lines if the file that it
// has just read was removed, because the oldest files are removed first.
func TestMissedBlind(t *testing.T) {
	for _, overflow := range []bool{false, true} {
		for _, removed := range []bool{false, true} {
			s := newStage(t)
			r := &reader{files: newLogFiles(t.Context(), s.path), o: Options{Tail: -1}, printer: newPrinter(io.Discard, Options{})}
			if overflow {
				var err error
				if r.watch, err = newDirWatch(r.files, removals); err != nil {
					t.Fatal(err)
				}
				defer r.watch.close()
				r.watch.recordEvents(binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, unix.IN_Q_OVERFLOW<<32), 0))
			}
			if err := r.begin(); err != nil {
				t.Fatal(err)
			}
			var want error
			if removed {
				s.remove(s.rotated(1))
				want = ErrMissed
			}
			if moved, err := r.openNextFile(t.Context()); !moved || !errors.Is(err, want) {
				t.Errorf("overflow %v, removed %v: %v, %v, want %v", overflow, removed, moved, err, want)
			}
			r.cur.close()
		}
	}
}

// TestWatchBound checks that a watch stores a limited number of names of removed files. It reports that its list is incomplete.
func TestWatchBound(t *testing.T) {
	s := newLogFiles(t.Context(), filepath.Join(t.TempDir(), "0.log"))
	w, err := newDirWatch(s, removals)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for i := range maxRemoved + 1 {
		path := filepath.Join(s.dir, fmt.Sprintf("0.log.%05d", i))
		put(t, path)
		if err := unix.Unlink(path); err != nil {
			t.Fatal(err)
		}
	}
	w.catchUp()
	if _, sure := w.hasMissed("0.log.99999", "", newLogFiles(t.Context(), "0.log").hasFile); sure || len(w.removedNames) > maxRemoved {
		t.Errorf("sure: %v, of %d names", sure, len(w.removedNames))
	}
}
