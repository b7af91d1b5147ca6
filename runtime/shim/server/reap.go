package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A reaper reaps the children of this process: commands of the OCI runtime, the first processes of
// containers, and orphans, because the shim is a subreaper. No other code may wait for a child.
type reaper struct {
	mu            sync.Mutex
	wait          map[int]chan unix.WaitStatus
	earlyStatuses map[int]unix.WaitStatus // statuses of unknown PIDs, stored while adopting > 0
	// adopting is the number of calls of adoptLater whose returned function has not been called yet.
	adopting int
	calls    map[int]*ociCall // commands of the OCI runtime that have not ended yet, by PID
	programs openedPrograms
}

// callTimeout is the timeout of a command of the OCI runtime. It equals the default of a kubelet's
// runtimeRequestTimeout.
const callTimeout = 2 * time.Minute

// stuckTimeout is how long to wait for the end of a command of the OCI runtime after SIGKILL. A process that waits in the kernel for a disk
// or a volume does not end before that responds.
const stuckTimeout = 10 * time.Second

// maxStuck is the maximum number of such commands for one pod. No container of the pod is started before one of them ends: each further
// attempt could leave another process. Other pods are not affected.
const maxStuck = 4

// errStuck is returned for a command that did not end within stuckTimeout.
var errStuck = errors.New("the command does not end although it was killed: it waits in the kernel, for example for a disk or a volume " +
	"that does not respond")

// An ociCall is a command of the OCI runtime. The reaper's mu guards killed.
type ociCall struct {
	pod    string // cgroup of the container's pod
	killed bool
	stuck  chan struct{} // closed stuckTimeout after the command was killed
}

func newReaper() *reaper {
	return &reaper{
		wait: map[int]chan unix.WaitStatus{}, earlyStatuses: map[int]unix.WaitStatus{}, calls: map[int]*ociCall{},
		programs: openedPrograms{},
	}
}

// run reaps children at the start and on each SIGCHLD, until ctx ends.
func (r *reaper) run(ctx context.Context) {
	sig := make(chan os.Signal, 1) // if a signal is dropped, another is still in the channel
	signal.Notify(sig, unix.SIGCHLD)
	defer signal.Stop(sig)
	for {
		r.reapChildren()
		select {
		case <-ctx.Done():
			return
		case <-sig:
		}
	}
}

func (r *reaper) reapChildren() {
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
			r.earlyStatuses[pid] = st
		}
	}
}

// runWithTimeout runs a command of the OCI runtime; see runCommand. The command is killed after callTimeout, or
// by endCalls. If it does not end then, runWithTimeout returns errStuck, and the command is reaped later. The pod is the container's pod.
func (r *reaper) runWithTimeout(pod string, cmd *exec.Cmd, launch func(*exec.Cmd) error) error {
	protected := func(cmd *exec.Cmd) error { r.programs.protectCommand(cmd); return launch(cmd) }
	return r.runCommand(cmd, protected, func(pid int) (stuck <-chan struct{}, ended func()) {
		call := &ociCall{pod: pod, stuck: make(chan struct{})}
		r.calls[pid] = call
		timer := time.AfterFunc(callTimeout, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.endCall(pid)
		})
		return call.stuck, func() { timer.Stop() }
	})
}

// checkStuck returns errStuck if a pod has maxStuck commands of the OCI runtime that do not end.
func (r *reaper) checkStuck(pod string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, call := range r.calls {
		select {
		case <-call.stuck:
			if call.pod == pod {
				n++
			}
		default:
		}
	}
	if n < maxStuck {
		return nil
	}
	return fmt.Errorf("%d commands of the OCI runtime for this pod have not ended: %w", n, errStuck)
}

// endCalls kills the running commands of the OCI runtime.
func (r *reaper) endCalls() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid := range r.calls {
		r.endCall(pid)
	}
}

// endCall kills a command of the OCI runtime, unless it has ended. The caller holds mu.
func (r *reaper) endCall(pid int) {
	call := r.calls[pid]
	if call == nil {
		return
	}
	unix.Kill(pid, unix.SIGKILL)
	if !call.killed {
		call.killed = true
		time.AfterFunc(stuckTimeout, func() { close(call.stuck) })
	}
}

// runCommand starts a command with the first given function and waits until the command has ended. The streams of the command must be
// files. The optional second function is called after the start. It returns a channel and a function. When the channel is closed,
// runCommand no longer waits and returns errStuck. The function is called when runCommand returns. Both given functions are called with mu
// held.
func (r *reaper) runCommand(
	cmd *exec.Cmd, launch func(*exec.Cmd) error, began func(pid int) (stuck <-chan struct{}, ended func()),
) error {
	r.mu.Lock() // prevents reaping between fork and registration
	if err := launch(cmd); err != nil {
		r.mu.Unlock()
		return err
	}
	ch := r.addChild(cmd.Process.Pid)
	var stuck <-chan struct{}
	if began != nil {
		var ended func()
		stuck, ended = began(cmd.Process.Pid)
		defer ended()
	}
	r.mu.Unlock()
	// Reset the OOM score adjustment that the command inherits from the shim. An OCI runtime may
	// treat a configured value of 0 as unset, and the container would inherit the shim's value.
	os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte("0"), 0)
	defer cmd.Process.Release()
	var st unix.WaitStatus
	select {
	case st = <-ch:
	case <-stuck:
		return errStuck
	}
	if st.Exited() && st.ExitStatus() == 0 {
		return nil
	}
	return fmt.Errorf("exit status %d", exitCode(st))
}

// adoptLater announces a call of adoptChild. Call it before the start of the process whose PID is passed to adoptChild. When adoptChild
// has returned or will not be called, call the returned function.
func (r *reaper) adoptLater() (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adopting++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.adopting--
		if r.adopting == 0 {
			clear(r.earlyStatuses)
		}
	}
}

// adoptChild returns a channel that receives the exit status of a child that the OCI runtime started.
func (r *reaper) adoptChild(pid int) <-chan unix.WaitStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := r.addChild(pid)
	if st, ok := r.earlyStatuses[pid]; ok {
		delete(r.earlyStatuses, pid)
		delete(r.wait, pid)
		ch <- st
	}
	return ch
}

func (r *reaper) addChild(pid int) chan unix.WaitStatus {
	ch := make(chan unix.WaitStatus, 1)
	r.wait[pid] = ch
	return ch
}

// kill sends a signal to a child. It does nothing if the child was already reaped, because the
// kernel may have reused the PID.
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
