package drain_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/drain"
)

// A fifoProcess is a process that writes to a FIFO. The FIFO has two open read ends, like the FIFOs of a containerd shim. Therefore the
// process gets no SIGPIPE when one of them is closed.
type fifoProcess struct {
	*exec.Cmd
	out    drain.Outputs
	broken int // number of calls of BrokenPipe
}

// startFIFO starts a shell script whose output is copied to w. If signal is true, BrokenPipe sends
// SIGPIPE to the script.
func startFIFO(t *testing.T, w *failingReader, signal bool, script string) *fifoProcess {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(path, os.O_RDWR, 0) // keeps both ends of the FIFO open until the test ends
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	ours, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	h := &fifoProcess{Cmd: exec.Command("/bin/sh", "-c", script)}
	h.Stdout = theirs
	h.out.Add(ours, w)
	h.out.BrokenPipe = func() {
		h.broken++
		if signal {
			h.Process.Signal(unix.SIGPIPE)
		}
	}
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	h.out.Start()
	return h
}

// finish waits until the process has ended and its output was read.
func (h *fifoProcess) finish(ctx context.Context) (syscall.WaitStatus, error) {
	h.Wait() // ProcessState contains the result
	err := h.out.Finish(ctx, 0)
	return h.ProcessState.Sys().(syscall.WaitStatus), err
}

// TestBrokenPipe checks that BrokenPipe is called when a reader fails.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	h := startFIFO(t, &failingReader{after: 100}, true, "exec yes")
	st, lost := h.finish(t.Context())
	var e *drain.LostError
	if st.Signal() != unix.SIGPIPE || !errors.As(lost, &e) || e.Bytes == 0 || h.broken != 1 {
		t.Errorf("an endless process: %v, %v, called %d times", h.ProcessState, lost, h.broken)
	}
}

// TestBrokenPipeIgnored checks that a process that ignores SIGPIPE is not blocked. LostError contains the number of bytes that the reader
// did not receive.
func TestBrokenPipeIgnored(t *testing.T) {
	t.Parallel()
	for _, size := range []int{101, 5000, 1 << 20} {
		h := startFIFO(t, &failingReader{after: 100}, true, fmt.Sprintf("trap '' PIPE; head -c %d /dev/zero; exit 3", size))
		st, lost := h.finish(t.Context())
		var e *drain.LostError
		if st.ExitStatus() != 3 || !errors.As(lost, &e) || e.Bytes != int64(size-100) || h.broken != 1 {
			t.Errorf("%d bytes: %v, %v, called %d times", size, h.ProcessState, lost, h.broken)
		}
	}
}

// TestBrokenPipeChild checks a child process that keeps writing after the reader has failed. The child process does not block Finish.
func TestBrokenPipeChild(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"running context": t.Context(), "canceled context": canceled} {
		pid := filepath.Join(t.TempDir(), "pid")
		h := startFIFO(t, &failingReader{after: 100}, true, fmt.Sprintf("trap '' PIPE; yes & echo $! >%s; head -c 100000 /dev/zero; exit 3", pid))
		began := time.Now()
		st, lost := h.finish(ctx)
		if e := new(drain.LostError); st.ExitStatus() != 3 || !errors.As(lost, &e) || e.Bytes < 100000-100 && ctx.Err() == nil {
			t.Errorf("%s: %v, %v", name, h.ProcessState, lost)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
		b, err := os.ReadFile(pid)
		child, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil || child == 0 || unix.Kill(child, unix.SIGKILL) != nil {
			t.Errorf("%s: the child process %q was not running: %v", name, b, err)
		}
	}
}
