package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/namespace"
	"github.com/islet-edge/islet/runtime/shim"
)

// Stream runs a command in a container, or attaches to the container's own process.
func (r *Runtime) Stream(ctx context.Context, id string, o cri.ExecOptions) error {
	if len(o.Command) > 0 {
		return r.exec(ctx, id, o)
	}
	c, client, err := r.runningContainer(ctx, id)
	if err != nil {
		return err
	}
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stdout, stderr io.Writer
	if o.Stdout != nil {
		stdout = o.Stdout
	}
	if o.Stderr != nil {
		stderr = o.Stderr
	}
	err = client.Attach(ctx, c.rec.ID, o.Stdin, stdout, stderr, shimSizes(ctx, o.Resize))
	if errors.Is(err, shim.ErrNoReason) {
		return c.awaitEnd(caller)
	}
	return err
}

// awaitEndTimeout limits the wait for the end of a container after the end of its output.
const awaitEndTimeout = 10 * time.Second

// awaitEnd returns the result of an attachment to an older shim, which does not report why the
// attachment ended. The result is nil if the container ends within awaitEndTimeout.
func (c *container) awaitEnd(ctx context.Context) error {
	timeout := time.NewTimer(awaitEndTimeout)
	defer timeout.Stop()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout.C:
		return fmt.Errorf("attach to container %s: output is missing: %w", c.rec.ID, shim.ErrNoReason)
	}
}

// shimSizes converts terminal sizes for a shim until ctx ends.
func shimSizes(ctx context.Context, from <-chan cri.TerminalSize) <-chan shim.Size {
	sizes := make(chan shim.Size)
	go func() {
		for {
			select {
			case s, ok := <-from:
				if !ok {
					return
				}
				select {
				case sizes <- shim.Size(s):
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}

// Forward connects stream to a TCP port on loopback inside the sandbox. The two directions end
// separately. After the server has closed its side, it still receives the data of the client. If a
// direction fails, or ctx ends, the connection is reset and an error is returned.
func (r *Runtime) Forward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	s, err := r.findSandbox(id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	ready := s.ready
	r.mu.Unlock()
	if !ready { // its network namespace does not exist; on the host's network, the port may belong to another program
		return fmt.Errorf("forward to port %d of sandbox %s: it is not ready: %w", port, s.rec.ID, errdefs.ErrFailedPrecondition)
	}
	conn, err := r.dialSandbox(ctx, s, port)
	if err != nil {
		return fmt.Errorf("forward to port %d of sandbox %s: %w", port, s.rec.ID, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { resetConn(conn); stream.Close() })()
	to := &clientStream{ReadWriteCloser: stream}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, err := io.Copy(conn, stream)
		var op *net.OpError
		switch c, ok := conn.(*net.TCPConn); {
		case errors.As(err, &op) && op.Op == "write": // the server stopped reading, but may have sent a response
		case err != nil, ctx.Err() != nil, to.wasReset():
			resetConn(conn) // the server must not mistake this for the end of the data
		case ok:
			c.CloseWrite()
		}
	}()
	if _, err = io.Copy(to, conn); err != nil {
		return errors.Join(err, ctx.Err())
	}
	to.Close() // the client sees the end of the data and may still send
	<-sent
	return ctx.Err()
}

// A clientStream is the stream of a client. A SPDY stream still accepts writes after the client has
// reset it, and their data is lost. Until this side closes the stream, the stream reports the
// reset.
type clientStream struct {
	io.ReadWriteCloser
	closed atomic.Bool
}

func (f *clientStream) wasReset() bool {
	s, ok := f.ReadWriteCloser.(interface{ IsFinished() bool })
	return ok && s.IsFinished() && !f.closed.Load()
}

// Write fails once the client has reset the stream.
func (f *clientStream) Write(b []byte) (int, error) {
	if f.wasReset() {
		return 0, io.ErrClosedPipe
	}
	return f.ReadWriteCloser.Write(b)
}

// Close ends the direction to the client.
func (f *clientStream) Close() error {
	f.closed.Store(true)
	return f.ReadWriteCloser.Close()
}

// resetConn closes a connection with a TCP reset, so that the peer does not mistake it for the end of
// the data.
func resetConn(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		c.SetLinger(0)
	}
	conn.Close()
}

// dialSandbox connects to a loopback address in the sandbox's network namespace. The addresses are
// literals, so no resolver starts a thread outside the namespace.
func (r *Runtime) dialSandbox(ctx context.Context, s *sandbox, port int32) (conn net.Conn, err error) {
	try := func() error {
		var d net.Dialer
		for _, host := range []string{"127.0.0.1", "::1"} {
			if conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))); err == nil {
				return nil
			}
		}
		return err
	}
	if s.hostNetwork() {
		return conn, try()
	}
	return conn, namespace.Do(r.netnsPath(s), try)
}

var errURL = fmt.Errorf("the CRI socket's server implements streams over a URL: %w", errdefs.ErrNotImplemented)

// Exec is not implemented. The server of the CRI socket implements Exec with Stream.
func (r *Runtime) Exec(context.Context, *api.ExecRequest) (*api.ExecResponse, error) {
	return nil, errURL
}

// Attach is not implemented. The server of the CRI socket implements Attach with Stream.
func (r *Runtime) Attach(context.Context, *api.AttachRequest) (*api.AttachResponse, error) {
	return nil, errURL
}

// PortForward is not implemented. The server of the CRI socket implements PortForward with Forward.
func (r *Runtime) PortForward(context.Context, *api.PortForwardRequest) (*api.PortForwardResponse, error) {
	return nil, errURL
}
