package stream

import (
	"context"
	"errors"
	"io"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream/frames"
)

// streams implements streaming.Runtime of k8s.io/cri-streaming with a cri.Streamer.
type streams struct{ to cri.Streamer }

// Exec runs a command in a container.
func (s streams) Exec(
	ctx context.Context, id string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize,
) error {
	return s.runStreams(ctx, id, cri.ExecOptions{Command: cmd, Stdin: toInput(ctx, in), Stdout: out, Stderr: errs, TTY: tty}, resize)
}

// Attach connects to the streams of a container's process.
func (s streams) Attach(
	ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize,
) error {
	return s.runStreams(ctx, id, cri.ExecOptions{Stdin: toInput(ctx, in), Stdout: out, Stderr: errs, TTY: tty}, resize)
}

// An input is the input of a process. Unlike the stream of the SPDY library, it distinguishes the end of the input from a reset.
type input struct {
	io.Reader
	resets *frames.Resets // nil for a WebSocket
}

// toInput returns an input that reads from in. The parameter ctx is the context of the request. It converts nil to nil.
func toInput(ctx context.Context, in io.Reader) io.Reader {
	if in == nil {
		return nil
	}
	resets, _ := ctx.Value(resetsKey{}).(*frames.Resets)
	return input{in, resets}
}

// errInputLost is the error of an input that the client has reset. client-go does so when it leaves the session.
var errInputLost = errors.New("the client has left before it ended its input")

// Read implements io.Reader.
func (i input) Read(b []byte) (int, error) {
	n, err := i.Reader.Read(b)
	if errors.Is(err, io.EOF) && i.resets.Has(i.Reader) {
		err = errInputLost
	}
	return n, err
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
