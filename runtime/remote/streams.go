package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/islet-edge/islet/runtime/cri"
)

// Streaming is a Runtime that also implements cri.Streamer, for exec, attach and port-forward. As
// with a kubelet, a command continues to run after its client has disconnected. Probes use ExecSync
// instead, which kills the command at its timeout.
type Streaming struct{ *Runtime }

// maxFailure is the maximum size of the error message at the end of a stream, in bytes.
const maxFailure = 64 << 10

// Stream runs a command in a container, or attaches to the container.
func (r Streaming) Stream(ctx context.Context, id string, o cri.ExecOptions) error {
	at, err := r.streamURL(ctx, id, o)
	if err != nil {
		return err
	}
	conn, err := dialStream(ctx, at, remotecommand.StreamProtocolV4Name)
	if err != nil {
		return fmt.Errorf("streams of container %s: %w", id, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return runStreams(ctx, conn, o)
}

// streamURL requests the URL of a command's streams from the runtime.
func (r Streaming) streamURL(ctx context.Context, id string, o cri.ExecOptions) (string, error) {
	if len(o.Command) == 0 {
		resp, err := r.Attach(ctx, &api.AttachRequest{
			ContainerId: id, Tty: o.TTY, Stdin: o.Stdin != nil, Stdout: o.Stdout != nil, Stderr: o.Stderr != nil,
		})
		return resp.GetUrl(), err
	}
	resp, err := r.Exec(ctx, &api.ExecRequest{
		ContainerId: id, Cmd: o.Command, Tty: o.TTY, Stdin: o.Stdin != nil, Stdout: o.Stdout != nil, Stderr: o.Stderr != nil,
	})
	return resp.GetUrl(), err
}

// runStreams connects a command's streams. It returns when the command has ended and its output is
// delivered.
func runStreams(ctx context.Context, conn httpstream.Connection, o cri.ExecOptions) error {
	open := func(kind string) (httpstream.Stream, error) {
		s, err := conn.CreateStream(http.Header{remotecommand.StreamType: {kind}})
		if err != nil {
			return nil, fmt.Errorf("open the stream %s: %w", kind, err)
		}
		return s, nil
	}
	end, err := open(remotecommand.StreamTypeError)
	if err != nil {
		return err
	}
	end.Close() // only the runtime writes to it
	var output sync.WaitGroup
	if o.Stdin != nil {
		in, err := open(remotecommand.StreamTypeStdin)
		if err != nil {
			return err
		}
		go func() { // ends with o.Stdin or the connection
			if _, err := io.Copy(in, o.Stdin); err == nil && ctx.Err() == nil {
				in.Close()
			}
		}()
	}
	outputs := map[string]io.Writer{
		remotecommand.StreamTypeStdout: toWriter(o.Stdout), remotecommand.StreamTypeStderr: toWriter(o.Stderr),
	}
	for kind, to := range outputs {
		if to == nil {
			continue
		}
		from, err := open(kind)
		if err != nil {
			return err
		}
		from.Close()
		output.Go(func() {
			if _, err := io.Copy(to, from); err != nil {
				io.Copy(io.Discard, from) // the command continues without its reader
			}
		})
	}
	if o.TTY {
		sizes, err := open(remotecommand.StreamTypeResize)
		if err != nil {
			return err
		}
		resizing, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); forwardSizes(resizing, sizes, o.Resize) }()
		defer func() { // the caller may use o.Resize for its next stream
			stop()
			conn.Close()
			<-ended
		}()
	}
	status, err := io.ReadAll(io.LimitReader(end, maxFailure))
	if err == nil {
		output.Wait()
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return decodeStatus(status)
}

// errLost is the error of a connection that ended before the stream. A SPDY stream reports such an end as io.EOF.
var errLost = errors.New("the connection to the container runtime was lost")

// isLost reports whether the connection has ended. In this case, the end of one of its streams may be only a consequence.
func isLost(conn httpstream.Connection) bool {
	select {
	case <-conn.CloseChan():
		return true
	default:
		return false
	}
}

// toWriter converts a WriteCloser to a Writer. It converts nil to nil.
func toWriter(w io.WriteCloser) io.Writer {
	if w == nil {
		return nil
	}
	return w
}

// forwardSizes forwards terminal sizes until ctx ends.
func forwardSizes(ctx context.Context, to httpstream.Stream, sizes <-chan cri.TerminalSize) {
	defer to.Close()
	for sizes != nil {
		select {
		case s, ok := <-sizes:
			if !ok || json.NewEncoder(to).Encode(remotecommand.TerminalSize{Width: s.Width, Height: s.Height}) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// decodeStatus converts the status at the end of a command, which is encoded as in version 4 of the
// protocol, to an error. In this version the runtime also sends a status after a success.
func decodeStatus(status []byte) error {
	if len(status) == 0 {
		return errLost
	}
	var s metav1.Status
	if err := json.Unmarshal(status, &s); err != nil {
		return fmt.Errorf("the container runtime reported an invalid end of the command: %q", status[:min(len(status), 200)])
	}
	if s.Status == metav1.StatusSuccess {
		return nil
	}
	if s.Reason == remotecommand.NonZeroExitCodeReason && s.Details != nil {
		for _, c := range s.Details.Causes {
			if code, err := strconv.ParseInt(c.Message, 10, 32); err == nil && c.Type == remotecommand.ExitCodeCauseType {
				return cri.ExitError{Code: int32(code)}
			}
		}
	}
	return errors.New(s.Message)
}

// Forward connects stream to a TCP port of a sandbox. If the connection to the runtime is lost, it returns an error and does
// not close stream, so that the caller can reset it. The client must not mistake the loss for the end of the data.
func (r Streaming) Forward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	resp, err := r.PortForward(ctx, &api.PortForwardRequest{PodSandboxId: id, Port: []int32{port}})
	if err != nil {
		return err
	}
	conn, err := dialStream(ctx, resp.GetUrl(), portforward.ProtocolV1Name)
	if err != nil {
		return fmt.Errorf("forward port %d of sandbox %s: %w", port, id, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	headers := http.Header{
		portforward.PortHeader: {strconv.Itoa(int(port))}, portforward.PortForwardRequestIDHeader: {"0"},
	}
	headers.Set(portforward.StreamType, portforward.StreamTypeError)
	failed, err := conn.CreateStream(headers)
	if err != nil {
		return err
	}
	failed.Close()
	headers.Set(portforward.StreamType, portforward.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		return err
	}
	go func() {
		if _, err := io.Copy(data, stream); err == nil && ctx.Err() == nil {
			data.Close() // only this direction: the port may still send
		}
	}()
	_, err = io.Copy(stream, data)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil && isLost(conn):
		return fmt.Errorf("forward port %d of sandbox %s: %w", port, id, errLost)
	}
	stream.Close()
	if err != nil {
		return fmt.Errorf("forward port %d of sandbox %s: %w", port, id, err)
	}
	if status, err := io.ReadAll(io.LimitReader(failed, maxFailure)); err == nil && len(status) > 0 {
		return errors.New(string(status))
	}
	return ctx.Err()
}
