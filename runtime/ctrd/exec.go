package ctrd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/capped"
	"github.com/islet-edge/islet/internal/inherit"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/drain"
	"github.com/islet-edge/islet/runtime/mounts"
)

// maxOutput is the maximum number of bytes that ExecSync returns of stdout and of stderr, as in other CRI runtimes.
const maxOutput = 16 << 20

// ExecSync runs a command in a container and returns its output. After the timeout the command is
// killed, and the error is context.DeadlineExceeded.
func (r *Runtime) ExecSync(ctx context.Context, req *api.ExecSyncRequest) (*api.ExecSyncResponse, error) {
	if len(req.GetCmd()) == 0 {
		return nil, fmt.Errorf("exec in container %s: no command: %w", req.GetContainerId(), errdefs.ErrInvalidArgument)
	}
	if t := req.GetTimeout(); t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(t)*time.Second)
		defer cancel()
	}
	stdout, stderr := &capped.Buffer{Max: maxOutput}, &capped.Buffer{Max: maxOutput}
	err := r.exec(ctx, req.GetContainerId(), cri.ExecOptions{Command: req.GetCmd(), Stdout: stdout, Stderr: stderr, Collect: true})
	var exit cri.ExitError
	switch {
	case errors.As(err, &exit):
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("command %q timed out after %ds: %w", req.GetCmd(), req.GetTimeout(), err)
	case err != nil:
		return nil, err
	}
	return &api.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: exit.Code}, nil
}

// exec runs a command in a container and waits for it. For a container of a containerd shim, the shim runs the command.
func (r *Runtime) exec(ctx context.Context, id string, o cri.ExecOptions) error {
	c, err := r.findContainer(id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	pid := c.pid
	r.mu.Unlock()
	if pid <= 0 {
		return fmt.Errorf("exec in container %s: it is not running: %w", c.rec.ID, errdefs.ErrFailedPrecondition)
	}
	run := func(ctx context.Context, stuck func()) error {
		if tasks := r.tasksOf(c.rec.Sandbox); tasks != nil {
			return r.execTask(ctx, tasks, c, o, stuck)
		}
		if err := r.checkAccountsWithTimeout(ctx, c.rec.ID, pid); err != nil {
			return fmt.Errorf("exec in container %s: %w", c.rec.ID, err)
		}
		return r.execOCI(ctx, c, o)
	}
	if o.Collect {
		return r.runAbandonable(ctx, c.rec.ID, o.Command, run)
	}
	return run(ctx, nil)
}

// execOCI runs a command in a container with the OCI runtime, without islet's shim, and waits for it.
func (r *Runtime) execOCI(ctx context.Context, c *container, o cri.ExecOptions) error {
	dir, err := r.commandDir(c, o)
	if err != nil {
		return err
	}
	defer mounts.RemoveAll(dir)
	p, err := r.execProcess(c.rec.ID, o)
	if err != nil {
		return fmt.Errorf("exec in container %s: %w", c.rec.ID, err)
	}
	cmd, socket, err := r.execCommand(ctx, r.ociOf(c.rec.Sandbox), dir, c.rec.ID, o.TTY)
	if err != nil {
		return fmt.Errorf("exec in container %s: %w", c.rec.ID, err)
	}
	defer socket.Close()
	handover, err := newHandover(cmd, p)
	if err != nil {
		return fmt.Errorf("exec in container %s: %w", c.rec.ID, err)
	}
	defer handover.close()
	timedOut := make(chan struct{})
	watch := func() (endedFirst func() bool) {
		r.chownStreams(c, cmd.Process.Pid)
		handover.sendSpec(r.log)
		begin := time.AfterFunc(execStartTimeout, func() {
			if _, err := os.Stat(filepath.Join(dir, "pid")); err != nil {
				close(timedOut)
				killExec(cmd.Process, dir)
			}
		})
		stop := context.AfterFunc(ctx, func() { killExec(cmd.Process, dir) })
		return func() bool { begin.Stop(); return stop() }
	}
	if o.Stderr != nil {
		o.Stderr = &outputGate{WriteCloser: o.Stderr, dir: dir}
	}
	if o.TTY {
		if o.Stdout != nil {
			o.Stdout = &outputGate{WriteCloser: o.Stdout, dir: dir}
		}
		err = runTerminal(ctx, cmd, socket, o, watch)
	} else {
		err = runPipes(ctx, cmd, o, watch)
	}
	if err = execError(err, dir); errors.Is(err, errEnded) {
		r.dropClones(c)
		return ctx.Err()
	}
	select {
	case <-timedOut:
		r.dropClones(c)
		return fmt.Errorf("exec in container %s: the command did not start within %v: %w", c.rec.ID, execStartTimeout,
			errdefs.ErrUnavailable)
	default:
		return err
	}
}

// dropClones removes the files of a runc process that was killed while it started a command. runc briefly bind-mounts its
// own program to a file next to its state. While such a mount exists, the state cannot be removed. If another runc
// process is running and loses its file, it uses a copy of its program.
func (r *Runtime) dropClones(c *container) {
	paths, _ := filepath.Glob(filepath.Join(r.ociOf(c.rec.Sandbox).Root, c.rec.ID, "runc.*"))
	for _, path := range paths {
		err := mounts.Detach(path)
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			r.log.Warn("a file of a killed OCI runtime could not be removed", "container", c.rec.ID, "path", path, "error", err)
		}
	}
}

// execStartTimeout limits the time in which an OCI runtime must start a command. It equals the
// timeout for the start of a container. Without it, a container could block the start forever by
// replacing files that the OCI runtime opens.
const execStartTimeout = 2 * time.Minute

// execProcess returns the specification of the process to execute. It is the specification of the
// container's first process with another command, the default scheduling policy and the default I/O priority.
func (r *Runtime) execProcess(id string, o cri.ExecOptions) (*specs.Process, error) {
	b, err := os.ReadFile(filepath.Join(r.bundlePath(id), "config.json"))
	if err != nil {
		return nil, err
	}
	var spec specs.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		return nil, err
	}
	p := spec.Process
	p.Scheduler, p.IOPriority = nil, nil // a probe must not take time from the container's real-time threads
	p.Args, p.Terminal = o.Command, o.TTY
	if o.TTY {
		p.Env = append(p.Env, "TERM=xterm")
	}
	return p, nil
}

// killExec kills the command inside the container, so that the OCI runtime exits. If the command has not started, killExec kills the OCI
// runtime and its descendants. If the OCI runtime is still running after drain.Grace, it is killed too. The PID in the file dir/pid may
// have been reused. Therefore killExec kills the process with this PID only if its parent or its grandparent is the process oci. It checks
// the grandparent too, because oci may be an "islet-shim exec" that started the OCI runtime.
func killExec(oci *os.Process, dir string) {
	b, _ := os.ReadFile(filepath.Join(dir, "pid"))
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		oci.Signal(unix.SIGSTOP) // it must not start more processes
		killChildren(oci.Pid)    // first, because the children of a dead process get another parent
		oci.Kill()
		return
	}
	time.AfterFunc(drain.Grace, func() { oci.Kill() }) // an error means that it has ended
	parent := parentOf(pid)
	// If the OCI runtime ends between the first two checks, oci becomes the parent of the command. The third check finds this case.
	if parent == oci.Pid || parentOf(parent) == oci.Pid || parentOf(pid) == oci.Pid {
		unix.Kill(pid, unix.SIGKILL)
	}
}

// parentOf returns the PID of a process's parent, or 0.
func parentOf(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name of the command may contain any character
	if len(f) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(f[1])
	return parent
}

// killChildren kills the descendants of a process. It repeats the search until there is no new
// child, because the process may inherit children of ended descendants. The kernel lists the
// children of each thread separately.
func killChildren(pid int) {
	killed := map[int]bool{}
	for found := true; found; {
		found = false
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, list := range lists {
			b, _ := os.ReadFile(list)
			for _, f := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(f); err == nil && !killed[child] {
					killed[child], found = true, true
					unix.Kill(child, unix.SIGSTOP)
					killChildren(child)
					unix.Kill(child, unix.SIGKILL)
				}
			}
		}
	}
}

// runPipes runs cmd with plain streams. It calls watch when cmd has started. When cmd has ended, runPipes calls the function that watch
// returned, which reports whether cmd ended before ctx.
func runPipes(ctx context.Context, cmd *exec.Cmd, o cri.ExecOptions, watch func() func() bool) (err error) {
	var out drain.Outputs
	defer func() {
		if cmd.Process == nil {
			out.Abort()
		}
	}()
	if o.Stdout != nil {
		if cmd.Stdout, err = out.Pipe(o.Stdout); err != nil {
			return err
		}
	}
	if o.Stderr != nil {
		if cmd.Stderr, err = out.Pipe(o.Stderr); err != nil {
			return err
		}
	}
	if o.Stdin != nil {
		// Do not set cmd.Stdin: Wait would block on a reader that may never return.
		w, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			if _, err := io.Copy(w, o.Stdin); err == nil && ctx.Err() == nil {
				w.Close() // otherwise cmd.Wait closes it after the end of the command
			}
		}()
	}
	if err := inherit.Start(cmd); err != nil {
		return err
	}
	return finishExec(ctx, cmd, cmd.Wait, o, &out, watch())
}

// collectTimeout is the maximum time for which the output of child processes is collected after the command itself has ended. For example,
// a lifecycle hook must not wait forever for child processes that continue to write.
const collectTimeout = 10 * time.Second

// errEnded is returned if the caller ended the command.
var errEnded = errors.New("ended by the caller")

// finishExec waits for the end of a command and the end of its output. The function wait blocks until cmd has ended. If output was not
// delivered, finishExec returns an error, regardless of the exit code of the command.
func finishExec(
	ctx context.Context, cmd *exec.Cmd, wait func() error, o cri.ExecOptions, out *drain.Outputs, endedFirst func() bool,
) error {
	out.Start()
	err := wait()
	endedByItself := endedFirst()
	limit := time.Duration(0)
	if o.Collect {
		limit = collectTimeout
	}
	lost := out.Finish(ctx, limit)
	switch {
	case !endedByItself, lost != nil && ctx.Err() != nil: // the caller has stopped waiting
		return errEnded
	case lost != nil:
		return &undeliveredError{deliveryError: lost, exitStatus: cmd.ProcessState.String()}
	}
	return err
}

// An undeliveredError is the error of a command that has run, but whose output was not delivered
// completely.
type undeliveredError struct {
	deliveryError error
	exitStatus    string // exit status of the command
}

func (u *undeliveredError) Error() string {
	return fmt.Sprintf("%v (the command: %s)", u.deliveryError, u.exitStatus)
}

func (u *undeliveredError) Unwrap() error { return u.deliveryError }

// An outputGate blocks writes until the command has started, for at most maxHold. Earlier output is an error message of the OCI runtime,
// which writes it to the command's streams if it cannot run the command. If the command does not start, the gate discards this output, and
// execError returns the reason as the error.
type outputGate struct {
	io.WriteCloser
	dir  string
	open bool
}

// maxHold is the maximum time for which an outputGate holds output back.
const maxHold = 2 * time.Second

func (g *outputGate) Write(b []byte) (int, error) {
	for timeout := time.After(maxHold); !g.open; {
		if _, err := os.Stat(filepath.Join(g.dir, "pid")); err == nil {
			break
		}
		if lastError(filepath.Join(g.dir, "log")) != "" {
			return len(b), nil
		}
		select {
		case <-timeout:
			g.open = true
		case <-time.After(2 * time.Millisecond):
		}
	}
	g.open = true
	return g.WriteCloser.Write(b)
}

// execError converts the exit of the OCI runtime to a cri.ExitError with the command's exit code.
// If the command was not started, execError returns the OCI runtime's error message as an error.
func execError(err error, dir string) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if _, statErr := os.Stat(filepath.Join(dir, "pid")); statErr != nil {
		if msg := lastError(filepath.Join(dir, "log")); msg != "" {
			return fmt.Errorf("run the command: %s", msg)
		}
	}
	code := exit.ExitCode()
	if st, ok := exit.Sys().(interface{ Signaled() bool }); ok && st.Signaled() {
		code = codeKilled
	}
	return cri.ExitError{Code: int32(code)}
}

// lastError returns the last error in a log of the OCI runtime, or "" if there is none.
func lastError(path string) string {
	b, _ := os.ReadFile(path)
	msg := ""
	for line := range bytes.Lines(b) {
		var l struct{ Level, Msg string }
		if json.Unmarshal(line, &l) == nil && l.Level == "error" {
			msg = l.Msg
		}
	}
	return msg
}
