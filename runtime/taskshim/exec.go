package taskshim

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/islet-edge/islet/runtime/drain"
	"github.com/islet-edge/islet/runtime/shim"
)

// An Exec is a command to run in a container. Nil streams are not connected.
type Exec struct {
	ID             string // ID of the container
	Dir            string // directory for FIFOs; the caller removes it
	Process        *specs.Process
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan shim.Size
	// Stuck makes Exec wait for the end of the command, and for the answers of the shim, without a limit. Exec calls Stuck once if the shim
	// has not started the command within commandTimeout. The caller no longer waits for the command then. Stuck is nil for a caller that
	// waits until Exec returns.
	Stuck    func()
	Children time.Duration // how long to read the output of remaining child processes after the command has ended; 0 means no limit
}

// Exec runs a command, waits until it has ended, and returns its exit code. If ctx ends first, Exec
// kills the command, and waits for its end. Without e.Stuck, it waits at most for commandTimeout. If output could not be delivered, the
// error is a *drain.LostError.
func (s *Shim) Exec(ctx context.Context, e Exec) (code uint32, err error) {
	spec, err := packJSON("Process", e.Process)
	if err != nil {
		return 0, err
	}
	tty := e.Process.Terminal
	f, err := makeFIFOs(e.Dir, e.Stdin != nil, !tty)
	if err != nil {
		return 0, err
	}
	defer f.close()
	exec := rand.Text()
	// The shim completes a call even if its caller no longer waits. Therefore the calls do not end
	// with ctx.
	callCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stuck := e.Stuck
	if stuck == nil {
		stuck = cancel
	}
	starting := time.AfterFunc(commandTimeout, stuck)
	defer starting.Stop()
	if err := s.call(callCtx, "Exec", &task.ExecProcessRequest{
		ID: e.ID, ExecID: exec, Terminal: tty, Stdin: f.stdin, Stdout: f.stdout, Stderr: f.stderr, Spec: spec,
	}, &emptypb.Empty{}); err != nil {
		return 0, err
	}
	defer s.deleteExec(context.WithoutCancel(ctx), e.ID, exec)
	if err := ctx.Err(); err != nil { // the answer came late, and nobody waits for the command
		return 0, err
	}
	out, err := openOutputs(f, e)
	if err != nil {
		return 0, err
	}
	if err := s.call(callCtx, "Start", &task.StartRequest{ID: e.ID, ExecID: exec}, &task.StartResponse{}); err != nil {
		out.Abort()
		return 0, err
	}
	starting.Stop()
	f.close() // the shim has opened its ends
	// The shim also has the FIFOs open for reading, so the command gets no SIGPIPE when this end is
	// closed.
	out.BrokenPipe = func() {
		signal := unix.SIGPIPE
		if tty {
			signal = unix.SIGHUP
		}
		callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
		defer cancel()
		s.call(callCtx, "Kill", &task.KillRequest{ID: e.ID, ExecID: exec, Signal: uint32(signal)}, &emptypb.Empty{})
	}
	out.Start()
	defer out.Finish(canceledContext(), 0) // after an error
	running, ended := context.WithCancel(ctx)
	defer ended()
	go s.forwardSizes(running, e.ID, exec, e.Resize)
	if e.Stdin != nil {
		in, err := os.OpenFile(f.stdin, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			return 0, err
		}
		defer in.Close()
		go func() {
			if _, err := io.Copy(in, e.Stdin); err != nil || ctx.Err() != nil {
				return // the command must not see the end of its input before it is killed
			}
			in.Close()
			if !tty {
				s.closeStdin(running, e.ID, exec)
			}
		}()
	}
	if code, err = s.awaitCommand(ctx, e.ID, exec, e.Stuck == nil); err != nil {
		return code, err
	}
	return code, out.Finish(ctx, e.Children)
}

// killInterval is the interval at which awaitCommand kills a command that does not end. The shim or its virtual machine may refuse a kill.
const killInterval = 10 * time.Second

// awaitCommand waits until a command has ended, and returns its exit code. If ctx ends first, awaitCommand kills the command, and repeats
// this every killInterval. A hanging shim does not report the end, and a process may wait in the kernel. If limited is true, awaitCommand
// then waits at most for commandTimeout. Otherwise it waits until the command or the shim has ended.
func (s *Shim) awaitCommand(ctx context.Context, id, exec string, limited bool) (code uint32, err error) {
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	stop := context.AfterFunc(ctx, func() {
		if limited {
			time.AfterFunc(commandTimeout, giveUp)
		}
		for waiting.Err() == nil {
			s.call(waiting, "Kill", &task.KillRequest{ID: id, ExecID: exec, Signal: uint32(unix.SIGKILL)}, &emptypb.Empty{})
			select {
			case <-waiting.Done():
			case <-time.After(killInterval):
			}
		}
	})
	var end task.WaitResponse
	if err := s.call(waiting, "Wait", &task.WaitRequest{ID: id, ExecID: exec}, &end); err != nil {
		stop()
		return 0, errors.Join(ctx.Err(), err)
	}
	if !stop() {
		return end.ExitStatus, ctx.Err()
	}
	return end.ExitStatus, nil
}

// canceledContext returns a canceled context.
func canceledContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func (s *Shim) deleteExec(ctx context.Context, id, exec string) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	err := s.call(ctx, "Delete", &task.DeleteRequest{ID: id, ExecID: exec}, &task.DeleteResponse{})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
		s.c.Logger.Warn("an ended command could not be deleted from its containerd shim", "container", id, "error", err)
	}
}

// forwardSizes forwards terminal sizes until ctx ends.
func (s *Shim) forwardSizes(ctx context.Context, id, exec string, sizes <-chan shim.Size) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			if err := s.resizeTo(ctx, id, exec, size.Width, size.Height); err != nil && ctx.Err() == nil {
				s.c.Logger.Debug("a terminal could not be resized", "container", id, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// openOutputs opens the read ends of the output FIFOs of a command.
func openOutputs(f *processFIFOs, e Exec) (*drain.Outputs, error) {
	o := &drain.Outputs{}
	for path, to := range map[string]io.Writer{f.stdout: e.Stdout, f.stderr: e.Stderr} {
		if path == "" {
			continue
		}
		r, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			o.Abort()
			return nil, err
		}
		if to == nil {
			to = io.Discard
		}
		o.Add(r, to)
	}
	return o, nil
}
