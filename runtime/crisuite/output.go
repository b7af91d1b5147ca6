package crisuite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// stopFor is how long a pausingReader pauses. It is longer than drain.Grace.
const stopFor = 2500 * time.Millisecond

// A pausingReader pauses once, at the first bytes.
type pausingReader struct {
	b    bytes.Buffer // not embedded: io.Copy would call its method ReadFrom instead of Write
	once sync.Once
}

func (s *pausingReader) Write(b []byte) (int, error) {
	s.once.Do(func() { <-time.After(stopFor) })
	return s.b.Write(b)
}

func (s *pausingReader) Close() error { return nil }

func (s *pausingReader) String() string { return s.b.String() }

func (s *pausingReader) Len() int { return s.b.Len() }

// expectedLines returns the output of prog's verb "lines".
func expectedLines(n int, end string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprint(&b, i, end)
	}
	return b.String()
}

// testSlowReader checks that a reader that pauses receives all bytes and the exit code. Short output fits into the pipe, so the command
// ends before its output is read. Longer output blocks the command.
func testSlowReader(t *testing.T, b *bench) {
	s := b.streamer()
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	id := b.create(pod, cfg, b.containerConfig("main", "wait"))
	b.start(id)
	var all sync.WaitGroup
	for _, n := range []int{500, 9000, 100000} {
		for _, tty := range []bool{false, true} {
			all.Go(func() {
				var out pausingReader
				o := cri.ExecOptions{Command: []string{"/prog", "lines", fmt.Sprint(n), "exit", "7"}, Stdout: &out, TTY: tty}
				want := expectedLines(n, "\n")
				if tty {
					want = expectedLines(n, "\r\n")
				}
				err := s.Stream(b.ctx, id, o)
				var exit cri.ExitError
				if !errors.As(err, &exit) || exit.Code != 7 || out.String() != want {
					t.Errorf("%d lines, terminal %v: %v, %d of %d bytes", n, tty, err, out.Len(), len(want))
				}
			})
		}
	}
	all.Wait()
}

// A failingReader accepts a number of bytes, and then fails.
type failingReader struct{ left int }

func (c *failingReader) Write(b []byte) (int, error) {
	n := min(c.left, len(b))
	c.left -= n
	if n < len(b) {
		return n, io.ErrClosedPipe
	}
	return n, nil
}

func (c *failingReader) Close() error { return nil }

// testClosingReader checks that a command gets SIGPIPE or SIGHUP and ends if its reader fails. The
// error must report the missing output, regardless of the exit code.
func testClosingReader(t *testing.T, b *bench) {
	s := b.streamer()
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	id := b.create(pod, cfg, b.containerConfig("main", "wait"))
	b.start(id)
	for _, tty := range []bool{false, true} {
		err := s.Stream(b.ctx, id, cri.ExecOptions{
			Command: []string{"/prog", "lines", "100000", "exit", "0"}, Stdout: &failingReader{1000}, TTY: tty,
		})
		if !errors.Is(err, io.ErrClosedPipe) || errors.As(err, new(cri.ExitError)) || !strings.Contains(err.Error(), "incomplete") {
			t.Errorf("terminal %v: %v", tty, err)
		}
	}
	b.waitUntil("the command ends", func() bool { return countPIDs(string(b.exec(id, "ls", "/proc").Stdout)) == 2 })
}

// testLeftBehind checks that exec ends soon after the command although child processes keep its
// output open. If the timeout passes while the output of child processes is read, exec must still
// return the exit code.
func testLeftBehind(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	id := b.create(pod, cfg, b.containerConfig("main", "wait"))
	b.start(id)
	for _, timeout := range []int64{0, 1} {
		began := time.Now()
		r, err := b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{ContainerId: id, Timeout: timeout,
			Cmd: []string{"/prog", "forked", "5s", "print", "own", "exit", "3"}})
		// runc waits for the child process, so the timeout passes before the exit code is known.
		late := timeout > 0 && err != nil && strings.Contains(err.Error(), "timed out")
		if took := time.Since(began); !late && (err != nil || string(r.Stdout) != "own\n" || r.ExitCode != 3) || took > time.Minute {
			t.Errorf("timeout %d: %v, %q, %d after %s", timeout, err, r.GetStdout(), r.GetExitCode(), took)
		}
	}
	s := b.streamer()
	var out buffer
	if err := s.Stream(b.ctx, id, cri.ExecOptions{
		Command: []string{"/prog", "late", "200ms", "100000", "print", "own"}, Stdout: &out,
	}); err != nil || out.String() != "own\n"+expectedLines(100000, "\n") {
		t.Errorf("a child process that writes after the end of its parent: %v, %d bytes", err, len(out.String()))
	}
	ctx, cancel := context.WithCancel(b.ctx)
	go func() { // the reader disconnects while nothing is written
		b.waitUntil("the command runs", func() bool { return strings.Contains(out.String(), "here\n") })
		cancel()
	}()
	if err := s.Stream(ctx, id, cri.ExecOptions{
		Command: []string{"/prog", "print", "here", "ignore"}, Stdout: &out,
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader that disconnects: %v", err)
	}
}

// testSlowAttach checks that an attached reader that pauses receives every byte, and that the log
// is complete.
func testSlowAttach(t *testing.T, b *bench) {
	s := b.streamer()
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	for _, n := range []int{500, 100000} {
		c := b.containerConfig(fmt.Sprint("cat", n), "cat", "exit", "7")
		c.Stdin, c.StdinOnce = true, true
		id := b.create(pod, cfg, c)
		b.start(id)
		var out pausingReader
		want := expectedLines(n, "\n")
		if err := s.Stream(b.ctx, id, cri.ExecOptions{Stdin: strings.NewReader(want), Stdout: &out}); err != nil || out.String() != want {
			t.Errorf("%d lines: %v, %d of %d bytes", n, err, out.Len(), len(want))
		}
		if st := b.awaitEnd(id); st.ExitCode != 7 {
			t.Errorf("%v", st)
		}
		if logged := strings.Count(b.readLog(c), "\n"); logged != n {
			t.Errorf("%d of %d lines are in the log", logged, n)
		}
	}
	c := b.containerConfig("closed", "lines", "100000", "exit", "7")
	id := b.create(pod, cfg, c)
	b.start(id)
	if err := s.Stream(b.ctx, id, cri.ExecOptions{Stdout: &failingReader{100}}); err == nil && !strings.Contains(b.readLog(c), "99999") {
		t.Error("a failing reader got no error, and the log is not complete")
	}
	if st := b.awaitEnd(id); st.ExitCode != 7 {
		t.Errorf("a failing reader: %v", st)
	}
}

// testSlowForward checks that a client that closes its write side first and reads slowly receives
// all data.
func testSlowForward(t *testing.T, b *bench) {
	s := b.streamer()
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "serve", "8080")
	b.start(b.create(pod, cfg, c))
	b.awaitLog(c, "listening")
	l := must(net.Listen("tcp", "127.0.0.1:0"))(b)
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		theirs, err := l.Accept()
		if err == nil {
			err = s.Forward(b.ctx, pod, 8080, theirs)
		}
		ended <- err
	}()
	ours := must(net.Dial("tcp", l.Addr().String()))(b).(*net.TCPConn)
	defer ours.Close()
	want := expectedLines(200000, "\n")
	go func() {
		io.WriteString(ours, want)
		ours.CloseWrite()
	}()
	var got pausingReader
	if _, err := io.Copy(&got, ours); err != nil || got.String() != want {
		t.Errorf("%v, %d of %d bytes", err, got.Len(), len(want))
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
