package stream

import (
	"context"
	"errors"
	"io"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/islet-edge/islet/runtime/cri"
)

// streams implements streaming.Runtime of k8s.io/cri-streaming with a cri.Streamer.
type streams struct{ to cri.Streamer }

// Exec runs a command in a container.
func (s streams) Exec(
	ctx context.Context, id string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize,
) error {
	return s.runStreams(ctx, id, cri.ExecOptions{Command: cmd, Stdin: in, Stdout: out, Stderr: errs, TTY: tty}, resize)
}

// Attach connects to the streams of a container's process.
func (s streams) Attach(
	ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize,
) error {
	return s.runStreams(ctx, id, cri.ExecOptions{Stdin: in, Stdout: out, Stderr: errs, TTY: tty}, resize)
}

// PortForward connects a stream to a port of a sandbox.
func (s streams) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	return s.to.Forward(ctx, id, port, stream)
}

func (s streams) runStreams(ctx context.Context, id string, o cri.ExecOptions, resize <-chan remotecommand.TerminalSize) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.TTY {
		o.Stderr = nil
		o.Resize = convertSizes(ctx, resize)
	}
	err := s.to.Stream(ctx, id, o)
	var exit cri.ExitError
	if errors.As(err, &exit) {
		return exec.CodeExitError{Err: err, Code: int(exit.Code)}
	}
	return err
}

// convertSizes converts the terminal sizes of a channel. The returned channel is closed when the channel
// in is closed or ctx ends.
func convertSizes(ctx context.Context, in <-chan remotecommand.TerminalSize) <-chan cri.TerminalSize {
	out := make(chan cri.TerminalSize)
	go func() {
		defer close(out)
		for {
			select {
			case <-ctx.Done():
				return
			case size, ok := <-in:
				if !ok {
					return
				}
				select {
				case out <- cri.TerminalSize(size):
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out
}
