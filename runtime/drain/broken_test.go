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

// A held process writes to a FIFO from which another process reads too, as with a containerd shim:
// closing one read end does not affect the process.
type held struct {
	*exec.Cmd
	out    drain.Outputs
	broken int // calls of BrokenPipe
}

// behind starts a shell script whose output is copied to w through such a FIFO. With signal,
// BrokenPipe signals the script.
func behind(t *testing.T, w *failing, signal bool, script string) *held {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(path, os.O_RDWR, 0) // open for both directions until the test ends
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	ours, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	h := &held{Cmd: exec.Command("/bin/sh", "-c", script)}
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

// finish waits for the end of the process and of its output.
func (h *held) finish(ctx context.Context) (syscall.WaitStatus, error) {
	h.Wait() // ProcessState has the code
	err := h.out.Finish(ctx, 0)
	return h.ProcessState.Sys().(syscall.WaitStatus), err
}

// TestBrokenPipe: BrokenPipe is called when a reader fails, and ends a process that would not
// notice a closed file.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	h := behind(t, &failing{after: 100}, true, "exec yes")
	st, lost := h.finish(t.Context())
	var e *drain.LostError
	if st.Signal() != unix.SIGPIPE || !errors.As(lost, &e) || e.Bytes == 0 || h.broken != 1 {
		t.Errorf("a process without end: %v, %v, called %d times", h.ProcessState, lost, h.broken)
	}
}

// A process that ignores the signal is not blocked by the pipe and ends with its own code. Every
// byte that its reader did not receive is counted, including those after the failure and those in
// the pipe when the process ends.
func TestBrokenPipeIgnored(t *testing.T) {
	t.Parallel()
	for _, size := range []int{101, 5000, 1 << 20} {
		h := behind(t, &failing{after: 100}, true, fmt.Sprintf("trap '' PIPE; head -c %d /dev/zero; exit 3", size))
		st, lost := h.finish(t.Context())
		var e *drain.LostError
		if st.ExitStatus() != 3 || !errors.As(lost, &e) || e.Bytes != int64(size-100) || h.broken != 1 {
			t.Errorf("%d bytes: %v, %v, called %d times", size, h.ProcessState, lost, h.broken)
		}
	}
}

// A child that keeps writing after the end of its process blocks no caller whose reader has failed,
// with or without a limit.
func TestBrokenPipeChild(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"a caller who waits": t.Context(), "a caller who goes": gone} {
		pid := filepath.Join(t.TempDir(), "pid")
		h := behind(t, &failing{after: 100}, true, fmt.Sprintf("trap '' PIPE; yes & echo $! >%s; head -c 100000 /dev/zero; exit 3", pid))
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
			t.Errorf("%s: the child %q had ended before the test ended it: %v", name, b, err)
		}
	}
}
