package logs

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

const stamp = "2026-11-21T02:03:04.00000000%dZ "

func put(t *testing.T, path string, lines ...string) {
	t.Helper()
	data := []byte(strings.Join(lines, "\n") + "\n")
	if strings.HasSuffix(path, ".gz") {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(data)
		z.Close()
		data = b.Bytes()
	}
	if err := os.WriteFile(path, data, 0o640); err != nil {
		t.Fatal(err)
	}
}

func line(n int, rest string) string { return fmt.Sprintf(stamp, n) + rest }

func read(t *testing.T, path string, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Read(t.Context(), path, o, nil, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	put(t, path+".20261121-020000.gz", line(1, "stdout F one"), line(2, "stderr F two"))
	put(t, path+".20261121-020001", line(3, "stdout P thr"), line(3, "stderr F between"), line(4, "stdout F ee"))
	put(t, path+".20261121-020001.gz.tmp", "not yet")
	put(t, path, "\x00\x00\x00 garbage", line(5, "stdout F "), line(6, "stdout F"), line(7, "stderr F last words"))

	at := time.Date(2026, 11, 21, 2, 3, 4, 4, time.UTC)
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"all":           {Options{Tail: -1}, "one\ntwo\nbetween\nthree\n\n\nlast words\n"},
		"stdout":        {Options{Tail: -1, Stream: Stdout}, "one\nthree\n\n\n"},
		"stderr":        {Options{Tail: -1, Stream: Stderr}, "two\nbetween\nlast words\n"},
		"tail 0":        {Options{Tail: 0}, ""},
		"tail 1":        {Options{Tail: 1}, "last words\n"},
		"tail 3":        {Options{Tail: 3}, "\n\nlast words\n"},
		"tail 4":        {Options{Tail: 4}, "three\n\n\nlast words\n"[len("thr"):]},
		"tail 6":        {Options{Tail: 6}, "two\nbetween\nthree\n\n\nlast words\n"},
		"tail many":     {Options{Tail: 99}, "one\ntwo\nbetween\nthree\n\n\nlast words\n"},
		"tail a stream": {Options{Tail: 2, Stream: Stderr}, "between\nlast words\n"},
		"limit":         {Options{Tail: -1, LimitBytes: 6}, "one\ntw"},
		"since":         {Options{Tail: -1, Since: at}, "\n\nlast words\n"},
		"timestamps": {Options{Tail: 1, Timestamps: true},
			"2026-11-21T02:03:04.000000007Z last words\n"},
	} {
		if got := read(t, path, c.o); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// A growingLog is a writer that appends lines to the log at each Write. It simulates a container that writes faster than the client reads.
type growingLog struct {
	t      *testing.T
	path   string
	got    strings.Builder
	writes int
}

func (g *growingLog) Write(b []byte) (int, error) {
	if g.writes++; g.writes > 100 {
		return 0, errors.New("the log is read without end")
	}
	f, err := os.OpenFile(g.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	defer f.Close()
	for range 1000 {
		if _, err := f.WriteString(line(1, "stdout F later\n")); err != nil {
			g.t.Fatal(err)
		}
	}
	return g.got.Write(b)
}

// TestReadEnds checks that a read without Follow ends where the log ended at the time of the request. Tail counts back from that point. The
// container writes faster than the log is read.
func TestReadEnds(t *testing.T) {
	text := strings.Repeat("first ", 20) // long, so that many lines are written before the reader reaches the end
	first := line(0, "stdout F "+text)
	for _, c := range []struct {
		rotated    int // number of lines in a rotated file
		tail, want int64
	}{{0, -1, 2000}, {0, 0, 0}, {0, 2, 2}, {0, 1500, 1500}, {0, 2500, 2000}, {100, -1, 2100}, {100, 2, 2}, {100, 2050, 2050}} {
		path := filepath.Join(t.TempDir(), "0.log")
		if c.rotated > 0 {
			put(t, path+".20261126-000000", slices.Repeat([]string{first}, c.rotated)...)
		}
		put(t, path, slices.Repeat([]string{first}, 2000)...)
		g := &growingLog{t: t, path: path}
		if err := Read(t.Context(), path, Options{Tail: c.tail}, nil, g); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if g.got.String() != strings.Repeat(text+"\n", int(c.want)) {
			t.Errorf("%+v: %d lines, the last ones %.20q", c, strings.Count(g.got.String(), "\n"), g.got.String()[max(0, g.got.Len()-20):])
		}
	}
}

func TestReadNothing(t *testing.T) {
	dir := t.TempDir()
	if got := read(t, filepath.Join(dir, "0.log"), Options{Tail: -1}); got != "" {
		t.Errorf("got %q", got)
	}
	if err := Read(t.Context(), filepath.Join(dir, "gone", "0.log"), Options{Tail: 5}, nil, io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing directory gives %v", err)
	}
}

func TestLongLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	long := strings.Repeat("x", 3*maxLine+7)
	var pieces []string
	for i := range 20 {
		pieces = append(pieces, line(1, "stdout P "+strings.Repeat(fmt.Sprint(i%10), 16<<10)))
	}
	put(t, path, append(append([]string{line(1, "stdout F first"), line(1, "stdout F "+long)}, pieces...),
		line(1, "stdout F end"), strings.Repeat("j", 2*maxLine), line(2, "stderr F after"))...)
	got := read(t, path, Options{Tail: -1})
	lines := strings.Split(got, "\n")
	if len(lines) != 5 || lines[0] != "first" || lines[1] != long || len(lines[2]) != 20*16<<10+3 || lines[3] != "after" {
		t.Errorf("got %d lines of %d bytes", len(lines), len(got))
	}
	if got := read(t, path, Options{Tail: 2}); got != lines[2]+"\nafter\n" {
		t.Errorf("tail over long lines: %.80q", got)
	}
}

func TestUnfinishedLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	os.WriteFile(path, []byte(line(1, "stdout F whole")+"\n"+line(2, "stdout P prompt> ")), 0o640)
	if got := read(t, path, Options{Tail: -1}); got != "whole\nprompt> " {
		t.Errorf("got %q", got)
	}
}

// TestFullDisk checks that a reader can follow a log after the disk was full. In this case the log's writer removes an incomplete line and
// later writes another line.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	put(t, path, line(1, "stdout F one"))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int64(len(line(1, "stdout F one")) + 1)
	var ended atomic.Bool
	out, done := make(lineWriter, 4), make(chan error)
	go func() {
		done <- Read(t.Context(), path, Options{Follow: true, Tail: -1}, func(context.Context) bool { return ended.Load() }, out)
	}()
	<-out
	for range 3 {
		f.WriteString(line(2, "stdout F half of a li"))
		f.Truncate(size)
	}
	f.WriteString(line(3, "stdout F another line, and a longer one") + "\n")
	ended.Store(true)
	f.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := <-out; got != "another line, and a longer one\n" {
		t.Errorf("got %q", got)
	}
}

// A rotator writes a log and rotates it as the shim does. It renames the file and creates a new one. Later it compresses the older files
// and deletes the oldest.
type rotator struct {
	t    *testing.T
	path string
	f    *os.File
	n    int
}

func (r *rotator) write(text string) {
	if r.f == nil {
		f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
		if err != nil {
			r.t.Error(err)
			return
		}
		r.f = f
	}
	fmt.Fprintf(r.f, "%s stdout F %s\n", time.Now().Format(time.RFC3339Nano), text)
}

func (r *rotator) rotate(compress bool) {
	r.f.Close()
	r.f = nil
	r.n++
	name := fmt.Sprintf("%s.20261121-%06d", r.path, r.n)
	if err := os.Rename(r.path, name); err != nil {
		r.t.Error(err)
	}
	if !compress {
		return
	}
	old, _ := filepath.Glob(r.path + ".*[0-9]")
	for _, o := range old {
		data, _ := os.ReadFile(o)
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(data)
		z.Close()
		os.WriteFile(o+".gz.tmp", b.Bytes(), 0o640)
		os.Rename(o+".gz.tmp", o+".gz")
		os.Remove(o)
	}
}

// TestFollow checks that each line of a continuously rotated log is returned once and in order. The readers start at the log's beginning or
// at its tail.
func TestFollow(t *testing.T) {
	const lines = 3000
	path := filepath.Join(t.TempDir(), "0.log")
	w := &rotator{t: t, path: path}
	var ended atomic.Bool
	var readers sync.WaitGroup
	start := make(chan struct{})
	results := make([]bytes.Buffer, 4)
	for i := range results {
		readers.Go(func() {
			o := Options{Follow: true, Tail: -1}
			if i%2 == 1 {
				o.Tail = 2 * lines // more lines than the log has
			}
			if i >= 2 {
				<-start
			}
			if err := Read(t.Context(), path, o, func(context.Context) bool { return ended.Load() }, &results[i]); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range lines {
		w.write(fmt.Sprint(i))
		if i == lines/2 {
			close(start)
		}
		if rand.IntN(50) == 0 {
			w.rotate(rand.IntN(2) == 0)
		}
	}
	w.write("end")
	w.f.Close()
	ended.Store(true) // not earlier, because an exited container writes no more lines
	readers.Wait()
	for i := range results {
		got := strings.Split(strings.TrimSuffix(results[i].String(), "\n"), "\n")
		if len(got) != lines+1 || got[lines] != "end" {
			t.Errorf("reader %d got %d lines, from %q to %q", i, len(got), got[0], got[len(got)-1])
			continue
		}
		for n, g := range got[:lines] {
			if g != fmt.Sprint(n) {
				t.Errorf("reader %d: line %d is %q", i, n, g)
				break
			}
		}
	}
}

// TestFollowNextAttempt checks that following ends with the container, also if the runtime reports the end only after it has closed the
// log, and the container's next attempt writes to its own log in the same directory all the time.
func TestFollowNextAttempt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	w := &rotator{t: t, path: path}
	w.write("hello")
	var next sync.WaitGroup
	stop, checks := make(chan struct{}), 0
	ended := func(context.Context) bool {
		checks++
		if checks == 2 { // after the log was closed
			next.Go(func() {
				f, err := os.Create(filepath.Join(filepath.Dir(path), "1.log"))
				if err != nil {
					t.Error(err)
					return
				}
				for {
					select {
					case <-stop:
						return // the file stays open, as that of a running container
					default:
						f.WriteString("x")
					}
				}
			})
		}
		return checks > 7 // the pause before the last check is longer than any pause of the writer
	}
	out, done := make(lineWriter, 1), make(chan error, 1)
	go func() { done <- Read(t.Context(), path, Options{Follow: true, Tail: -1}, ended, out) }()
	if got := <-out; got != "hello\n" {
		t.Errorf("got %q", got)
	}
	w.f.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	close(stop)
	next.Wait()
}

// TestHiddenName checks that the next file is found if the current file is compressed and deleted while it is read. The file system renames
// the deleted file.
func TestHiddenName(t *testing.T) {
	s := newLogFiles(t.Context(), filepath.Join(t.TempDir(), "0.log"))
	path := filepath.Join(s.dir, s.base)
	put(t, path+".1.gz", line(1, "stdout F one"))
	put(t, path+".2", line(2, "stdout F two"))
	put(t, path, line(3, "stdout F three"))
	f, err := s.open("0.log.2")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	put(t, path+".2.gz", line(2, "stdout F two"))
	if err := os.Rename(path+".2", filepath.Join(s.dir, ".nfs00000001")); err != nil {
		t.Fatal(err)
	}
	next, err := s.openNext(f)
	if err != nil || next.stem != "0.log" {
		t.Fatalf("got %v, %v", next, err)
	}
	next.close()
}

// A lineWriter sends each write to a channel.
type lineWriter chan string

func (w lineWriter) Write(b []byte) (int, error) { w <- string(b); return len(b), nil }

func TestFollowStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(lineWriter), make(chan error)
	go func() {
		done <- Read(ctx, path, Options{Follow: true, Tail: -1}, func(context.Context) bool { return false }, out)
	}()
	w := &rotator{t: t, path: path}
	w.write("hello")
	if got := <-out; got != "hello\n" {
		t.Errorf("got %q", got)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// The removal of a log ends the reading too.
	go func() {
		done <- Read(t.Context(), path, Options{Follow: true, Tail: 0}, func(context.Context) bool { return true }, out)
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFollowRemoved checks that the lines that a container writes between the removal of its log and its end are printed. If the container
// continues to run, the lines so far are printed.
func TestFollowRemoved(t *testing.T) {
	for _, ends := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "0.log")
		w := &rotator{t: t, path: path}
		w.write("hello")
		calls := 0
		ended := func(context.Context) bool {
			if calls++; calls == 1 {
				return false
			}
			w.write("bye") // while Read examines the state, which is the last moment before the end
			return ends
		}
		out, done := make(lineWriter, 10), make(chan error, 1)
		go func() { done <- Read(t.Context(), path, Options{Follow: true, Tail: -1}, ended, out) }()
		if got := <-out; got != "hello\n" {
			t.Errorf("got %q", got)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := <-done; ends && err != nil || !ends && !errors.Is(err, ErrRemoved) {
			t.Errorf("ends %t: %v", ends, err)
		}
		close(out)
		rest := ""
		for got := range out {
			rest += got
		}
		if rest != "bye\n" {
			t.Errorf("ends %t: the rest is %q", ends, rest)
		}
	}
}

func FuzzCRILogLine(f *testing.F) {
	f.Add([]byte("2016-10-06T00:17:09.669794202Z stdout F content"), 3)
	f.Add([]byte("2016-10-06T00:17:09Z stderr P:x \n\n2016-10-06T00:17:09Z stderr F"), 1)
	f.Add([]byte("\x00\x00\n2016-10-06T00:17:09+01:00 stdout F a\n"), 0)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		path := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		all := read(t, path, Options{Tail: -1, Timestamps: true})
		if len(all) > len(data)*8+64 {
			t.Fatalf("%d bytes became %d", len(data), len(all))
		}
		if n < 0 || n > 1000 {
			return
		}
		tail := read(t, path, Options{Tail: int64(n)})
		if strings.Count(tail, "\n") > strings.Count(all, "\n")+1 {
			t.Fatalf("tail %d returns more than the whole log: %q, %q", n, tail, all)
		}
	})
}

// TestFollowWithoutInotify follows a log while other programs use all inotify instances.
func TestFollowWithoutInotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "0.log")
		put(t, path, line(1, "stdout F one"))
		var ended atomic.Bool
		out := &bytes.Buffer{}
		done := make(chan error)
		go func() {
			o, isEnded := Options{Follow: true, Tail: -1}, func(context.Context) bool { return ended.Load() }
			done <- readWatched(t.Context(), path, o, isEnded, out, func(logFiles, uint32) (*dirWatch, error) { return nil, unix.EMFILE })
		}()
		time.Sleep(time.Minute) // in the bubble
		put(t, path, line(1, "stdout F one"), line(2, "stdout F two"))
		time.Sleep(pollInterval) // in the bubble
		synctest.Wait()
		if got := out.String(); got != "one\ntwo\n" {
			t.Errorf("while the container runs: %q", got)
		}
		ended.Store(true)
		if err := <-done; err != nil || out.String() != "one\ntwo\n" {
			t.Errorf("at the end: %q, %v", out, err)
		}
	})
}
