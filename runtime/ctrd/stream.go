package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/namespace"
	"github.com/islet-edge/islet/runtime/shim"
)

// Stream runs a command in a container, or attaches to its own process.
func (r *Runtime) Stream(ctx context.Context, id string, o cri.ExecOptions) error {
	if len(o.Command) > 0 {
		return r.exec(ctx, id, o)
	}
	c, client, err := r.running(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stdout, stderr io.Writer
	if o.Stdout != nil {
		stdout = o.Stdout
	}
	if o.Stderr != nil {
		stderr = o.Stderr
	}
	return client.Attach(ctx, c.rec.ID, o.Stdin, stdout, stderr, shimSizes(ctx, o.Resize))
}

// shimSizes passes sizes of a terminal on as shims have them, until ctx ends.
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

// Forward connects stream to a TCP port on loopback inside the sandbox.
func (r *Runtime) Forward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	s, err := r.sandbox(id)
	if err != nil {
		return err
	}
	conn, err := r.dial(ctx, s, port)
	if err != nil {
		return fmt.Errorf("forward to port %d of sandbox %s: %w", port, s.rec.ID, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close(); stream.Close() })()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		io.Copy(conn, stream)
		if c, ok := conn.(*net.TCPConn); ok {
			c.CloseWrite()
		}
	}()
	_, err = io.Copy(stream, conn)
	return errors.Join(err, ctx.Err())
}

// dial connects to loopback in the sandbox's network. The address is a literal, so
// that dialling stays on the thread that is in the namespace.
func (r *Runtime) dial(ctx context.Context, s *sandbox, port int32) (conn net.Conn, err error) {
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
	return conn, namespace.Do(r.netns(s), try)
}

var errURL = fmt.Errorf("streams over a URL are made by the server of the CRI socket: %w", errdefs.ErrNotImplemented)

// Exec is for a CRI socket, whose server answers it with Stream.
func (r *Runtime) Exec(context.Context, *api.ExecRequest) (*api.ExecResponse, error) {
	return nil, errURL
}

// Attach is for a CRI socket, whose server answers it with Stream.
func (r *Runtime) Attach(context.Context, *api.AttachRequest) (*api.AttachResponse, error) {
	return nil, errURL
}

// PortForward is for a CRI socket, whose server answers it with Forward.
func (r *Runtime) PortForward(context.Context, *api.PortForwardRequest) (*api.PortForwardResponse, error) {
	return nil, errURL
}
