package taskshim

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/islet-edge/islet/runtime/shim"
)

// lastOutput is how long output may come after the end of a command, should a process
// that it left behind hold it open.
const lastOutput = time.Second

// An Exec is a command to run in a container. Streams that are nil are not connected.
type Exec struct {
	ID             string // of the container
	Dir            string // where FIFOs are made; the caller removes it
	Process        *specs.Process
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan shim.Size
}

// Exec runs a command to its end and returns its exit code. When ctx ends first the
// command is killed.
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
	// What the shim was asked for it does: ctx ends the command, but not the asking.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTime)
	defer cancel()
	if err := s.call(late, "Exec", &task.ExecProcessRequest{
		ID: e.ID, ExecID: exec, Terminal: tty, Stdin: f.stdin, Stdout: f.stdout, Stderr: f.stderr, Spec: spec,
	}, &emptypb.Empty{}); err != nil {
		return 0, err
	}
	defer s.deleteExec(context.WithoutCancel(ctx), e.ID, exec)
	out, err := openOutputs(f, e)
	if err != nil {
		return 0, err
	}
	defer out.close()
	if err := s.call(late, "Start", &task.StartRequest{ID: e.ID, ExecID: exec}, &task.StartResponse{}); err != nil {
		return 0, err
	}
	f.close() // the shim has opened its ends
	out.pump()
	running, ended := context.WithCancel(ctx)
	defer ended()
	defer context.AfterFunc(ctx, func() {
		s.call(context.WithoutCancel(ctx), "Kill", &task.KillRequest{ID: e.ID, ExecID: exec, Signal: uint32(unix.SIGKILL)}, &emptypb.Empty{})
	})()
	go s.resize(running, e.ID, exec, e.Resize)
	if e.Stdin != nil {
		in, err := os.OpenFile(f.stdin, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			return 0, err
		}
		defer in.Close()
		go func() {
			io.Copy(in, e.Stdin)
			in.Close()
			if !tty {
				s.closeStdin(running, e.ID, exec)
			}
		}()
	}
	var end task.WaitResponse
	if err := s.call(context.WithoutCancel(ctx), "Wait", &task.WaitRequest{ID: e.ID, ExecID: exec}, &end); err != nil {
		return 0, errors.Join(ctx.Err(), err)
	}
	out.finish()
	return end.ExitStatus, ctx.Err()
}

func (s *Shim) deleteExec(ctx context.Context, id, exec string) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	err := s.call(ctx, "Delete", &task.DeleteRequest{ID: id, ExecID: exec}, &task.DeleteResponse{})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
		s.c.Logger.Warn("a command that has ended was not deleted", "container", id, "error", err)
	}
}

// resize passes sizes of a terminal on until ctx ends.
func (s *Shim) resize(ctx context.Context, id, exec string, sizes <-chan shim.Size) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			if err := s.resizeTo(ctx, id, exec, size.Width, size.Height); err != nil && ctx.Err() == nil {
				s.c.Logger.Debug("a terminal was not resized", "container", id, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// outputs are the reading ends of a command's output.
type outputs struct {
	files []*os.File
	to    []io.Writer
	pumps sync.WaitGroup
}

func openOutputs(f *fifos, e Exec) (*outputs, error) {
	o := &outputs{}
	for path, to := range map[string]io.Writer{f.stdout: e.Stdout, f.stderr: e.Stderr} {
		if path == "" {
			continue
		}
		r, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			o.close()
			return nil, err
		}
		if to == nil {
			to = io.Discard
		}
		o.files, o.to = append(o.files, r), append(o.to, to)
	}
	return o, nil
}

func (o *outputs) pump() {
	for i, f := range o.files {
		o.pumps.Go(func() { io.Copy(o.to[i], f) })
	}
}

// finish waits for the last output, but not for long.
func (o *outputs) finish() {
	late := time.AfterFunc(lastOutput, o.close)
	defer late.Stop()
	o.pumps.Wait()
}

func (o *outputs) close() {
	for _, f := range o.files {
		f.Close()
	}
	o.pumps.Wait()
}
