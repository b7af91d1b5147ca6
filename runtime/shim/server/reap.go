package server

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A reaper collects every child of this process: the OCI runtime's commands,
// containers, and orphans, for the shim is a subreaper. Nothing else here may
// wait for a process.
type reaper struct {
	mu    sync.Mutex
	wait  map[int]chan unix.WaitStatus
	early map[int]unix.WaitStatus // ended before anyone asked, kept while adopting > 0
	// adopting counts those who will soon call adopt for a PID not known yet.
	adopting int
	calls    map[int]struct{} // commands of the OCI runtime that go on
	programs programs
}

// callTime bounds a command of the OCI runtime, as runtimeRequestTimeout bounds a
// kubelet's requests: one that hangs would keep its pod for ever.
const callTime = 2 * time.Minute

func newReaper() *reaper {
	return &reaper{wait: map[int]chan unix.WaitStatus{}, early: map[int]unix.WaitStatus{}, calls: map[int]struct{}{}, programs: programs{}}
}

// run reaps until ctx ends: on SIGCHLD, and at first what ended before it listened.
func (r *reaper) run(ctx context.Context) {
	sig := make(chan os.Signal, 1) // a lost signal does not matter: one is pending
	signal.Notify(sig, unix.SIGCHLD)
	defer signal.Stop(sig)
	for {
		r.reap()
		select {
		case <-ctx.Done():
			return
		case <-sig:
		}
	}
}

func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var st unix.WaitStatus
		pid, err := unix.Wait4(-1, &st, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ch, ok := r.wait[pid]; ok {
			delete(r.wait, pid)
			delete(r.calls, pid)
			ch <- st
		} else if r.adopting > 0 {
			r.early[pid] = st
		}
	}
}

// call is command for the OCI runtime: it ends within callTime, or by endCalls.
func (r *reaper) call(cmd *exec.Cmd, launch func(*exec.Cmd) error) error {
	protected := func(cmd *exec.Cmd) error { r.programs.protect(cmd); return launch(cmd) }
	return r.command(cmd, protected, func(pid int) (ended func()) {
		r.calls[pid] = struct{}{}
		late := time.AfterFunc(callTime, func() { r.kill(pid, unix.SIGKILL) })
		return func() { late.Stop() }
	})
}

// endCalls kills the commands of the OCI runtime that go on.
func (r *reaper) endCalls() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid := range r.calls {
		unix.Kill(pid, unix.SIGKILL)
	}
}

// command runs cmd, whose streams must be files, to its end. launch starts it. launch and
// began are called with mu held.
func (r *reaper) command(cmd *exec.Cmd, launch func(*exec.Cmd) error, began func(pid int) (ended func())) error {
	r.mu.Lock() // no reaping between fork and registration
	if err := launch(cmd); err != nil {
		r.mu.Unlock()
		return err
	}
	ch := r.expect(cmd.Process.Pid)
	if began != nil {
		defer began(cmd.Process.Pid)()
	}
	r.mu.Unlock()
	// The shim's own protection from the OOM killer is not for containers: an OCI
	// runtime may take a score of 0 as nothing to set.
	os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte("0"), 0)
	st := <-ch
	cmd.Process.Release()
	if st.Exited() && st.ExitStatus() == 0 {
		return nil
	}
	return fmt.Errorf("exit status %d", exitCode(st))
}

// adoptLater must be called before a process comes to life that adopt will name;
// the returned function afterwards.
func (r *reaper) adoptLater() (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adopting++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.adopting--; r.adopting == 0 {
			clear(r.early)
		}
	}
}

// adopt returns a channel that gets the status of a child that someone else
// started.
func (r *reaper) adopt(pid int) <-chan unix.WaitStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := r.expect(pid)
	if st, ok := r.early[pid]; ok {
		delete(r.early, pid)
		delete(r.wait, pid)
		ch <- st
	}
	return ch
}

func (r *reaper) expect(pid int) chan unix.WaitStatus {
	ch := make(chan unix.WaitStatus, 1)
	r.wait[pid] = ch
	return ch
}

// kill signals a child that was not reaped yet, so that it never hits a stranger.
func (r *reaper) kill(pid int, sig unix.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.wait[pid]; !ok {
		return nil
	}
	return unix.Kill(pid, sig)
}

func exitCode(st unix.WaitStatus) int32 {
	if st.Signaled() {
		return 128 + int32(st.Signal())
	}
	return int32(st.ExitStatus())
}
