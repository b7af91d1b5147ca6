package drain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/runtime/drain"
)

// run runs a shell script whose output is copied to w. It returns the results of Wait and Finish.
func run(t *testing.T, ctx context.Context, w io.Writer, limit time.Duration, script string) (error, error) {
	t.Helper()
	var out drain.Outputs
	cmd := exec.Command("/bin/sh", "-c", script)
	var err error
	if cmd.Stdout, err = out.Pipe(w); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		out.Abort()
		t.Fatal(err)
	}
	out.Start()
	err = cmd.Wait()
	return err, out.Finish(ctx, limit)
}

// seq returns the output of the command seq 1 n.
func seq(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// A gatedReader is a reader that blocks in Write until the channel open is closed.
type gatedReader struct {
	strings.Builder
	once sync.Once
	full chan struct{} // closed by the first write
	open chan struct{} // closed by the test
}

func newGated() *gatedReader {
	return &gatedReader{full: make(chan struct{}), open: make(chan struct{})}
}

func (g *gatedReader) Write(b []byte) (int, error) {
	g.once.Do(func() { close(g.full) })
	<-g.open
	return g.Builder.Write(b)
}

// TestSlowReader checks a reader that pauses after the process has ended. It receives all bytes of the pipe, even if its pause is longer
// than Grace.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	want := seq(10000) // 48,894 bytes, which fit into the pipe, so the process ends immediately
	for name, limit := range map[string]time.Duration{"followed": 0, "collected": time.Nanosecond} {
		g := newGated()
		go func() {
			<-g.full
			time.AfterFunc(2*drain.Grace+drain.Grace/2, func() { close(g.open) })
		}()
		err, lost := run(t, t.Context(), g, limit, "seq 1 10000; exit 7")
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 || lost != nil || g.String() != want {
			t.Errorf("%s: %v, %v, %d of %d bytes", name, err, lost, g.Len(), len(want))
		}
	}
}

// TestChildren checks that the output of a child process is still read when the process itself has ended. If the child process writes
// nothing, it is ignored after Grace.
func TestChildren(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	began := time.Now()
	err, lost := run(t, t.Context(), &out, 0, "(sleep 0.4; seq 1 300000) & echo first; exit 0")
	if err != nil || lost != nil || out.String() != "first\n"+seq(300000) {
		t.Errorf("a child process that writes: %v, %v, %d bytes", err, lost, out.Len())
	}
	out.Reset()
	began = time.Now()
	err, lost = run(t, t.Context(), &out, 0, "sleep 1000 & echo $!; exit 3")
	if took := time.Since(began); err == nil || lost != nil || took < drain.Grace || took > 20*drain.Grace {
		t.Errorf("a child process that writes nothing: %v, %v after %s", err, lost, took)
	}
	exec.Command("kill", "-9", strings.TrimSpace(out.String())).Run()
}

// TestEndlessChild checks a child process that never stops writing. It does not block Finish if Finish has a limit or its context ends. The
// output of the process itself is complete.
func TestEndlessChild(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err, lost := run(t, t.Context(), &out, time.Millisecond, "echo own; yes & exit 0")
	if err != nil || lost != nil || !strings.HasPrefix(out.String(), "own\n") {
		t.Errorf("collected: %v, %v, %.10q", err, lost, out.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), drain.Grace/10)
	defer cancel()
	out.Reset()
	err, lost = run(t, ctx, &out, 0, "echo own; sleep 1000 & exit 0")
	if err != nil || lost != nil || out.String() != "own\n" {
		t.Errorf("context ended: %v, %v, %q", err, lost, out.String())
	}
}

// A failingReader is a reader that returns an error from Write after the given number of bytes.
type failingReader struct{ after int }

func (f *failingReader) Write(b []byte) (int, error) {
	n := min(f.after, len(b))
	f.after -= n
	if n < len(b) {
		return n, errors.New("reader closed")
	}
	return n, nil
}

// TestLost checks that Finish returns an error if the reader has failed. The process is not blocked.
func TestLost(t *testing.T) {
	t.Parallel()
	err, lost := run(t, t.Context(), &failingReader{after: 100}, 0, "yes")
	var e *drain.LostError
	if err == nil || !errors.As(lost, &e) || e.Bytes == 0 || !strings.Contains(lost.Error(), "reader closed") {
		t.Errorf("a failing reader: %v, %v", err, lost)
	}
	// If the context ends while the reader pauses, the error contains the number of lost bytes.
	g := newGated()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-g.full; cancel(); close(g.open) }()
	_, lost = run(t, ctx, g, 0, "seq 1 10000")
	if got, missing := g.Len(), len(seq(10000))-g.Len(); missing > 0 && (!errors.As(lost, &e) || e.Bytes != int64(missing)) ||
		missing == 0 && lost != nil {
		t.Errorf("canceled context: %d bytes, %v", got, lost)
	}
}

// TestManyChildren checks processes whose child processes keep running. No goroutine and no file descriptor is left.
func TestManyChildren(t *testing.T) {
	files := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(d)
	}
	var warm bytes.Buffer
	run(t, t.Context(), &warm, 0, "echo warm")
	goroutines, fds := runtime.NumGoroutine(), files()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			var out bytes.Buffer
			err, lost := run(t, t.Context(), &out, 0, "sleep 3 & echo own; exit 0")
			if err != nil || lost != nil || out.String() != "own\n" {
				t.Errorf("%v, %v, %q", err, lost, out.String())
			}
		})
	}
	all.Wait()
	if g, f := runtime.NumGoroutine(), files(); g > goroutines+3 || f > fds {
		t.Errorf("%d goroutines and %d descriptors, want %d and %d", g, f, goroutines, fds)
	}
}
