package session

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/printable"
)

// forwardCommand implements islet port-forward.
type forwardCommand struct {
	*command.Tool
	client.PodFlag
	address    string
	outputLock sync.Mutex
}

// PortForward sets up islet port-forward.
func PortForward(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &forwardCommand{Tool: t}
	c.Declare(flags)
	flags.StringVar(&c.address, "address", "127.0.0.1", "the local address to listen on")
	return c.run
}

// A forwardedPort contains a port of the pod and its local port.
type forwardedPort struct{ local, remote uint16 }

func (c *forwardCommand) run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return command.Usage("port-forward needs a pod and a port: islet port-forward POD [LOCAL:]REMOTE")
	}
	var ports []forwardedPort
	for _, a := range args[1:] {
		p, err := parseForwarded(a)
		if err != nil {
			return err
		}
		ports = append(ports, p)
	}
	pod, err := client.FindPod(ctx, c.Tool, c.PodFlag, args[0])
	if err != nil {
		return err
	}
	conn, err := c.openSPDY(ctx, fmt.Sprintf("/portForward/%s/%s", pod.Namespace, pod.Name))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, p := range ports {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(c.address, strconv.Itoa(int(p.local))))
		if err != nil {
			return fmt.Errorf("listen for port %d of the pod: %w", p.remote, err)
		}
		context.AfterFunc(ctx, func() { ln.Close() })
		fmt.Fprintf(c.Out, "Forwarding from %s -> %d\n", ln.Addr(), p.remote)
		all.Go(func() { c.acceptConnections(ctx, ln, conn, p.remote, &all) })
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-conn.CloseChan():
		return command.ExitWith(
			command.ExitUnreachable,
			fmt.Errorf("lost the connection to pod %s/%s: the pod or the agent has ended", pod.Namespace, pod.Name))

	}
}

// parseForwarded parses REMOTE, LOCAL:REMOTE or :REMOTE. For :REMOTE, any free local port is used.
func parseForwarded(s string) (p forwardedPort, err error) {
	local, remote, both := strings.Cut(s, ":")
	if !both {
		remote = local
	}
	number := func(text string) (uint16, error) {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return 0, command.Usage("port %q: must be [LOCAL:]REMOTE, numbers up to 65535", s)
		}
		return uint16(n), nil
	}
	if p.remote, err = number(remote); err != nil || p.remote == 0 {
		return p, cmp.Or(err, command.Usage("port %q: the pod's port must not be 0", s))
	}
	if both && local == "" {
		return p, nil
	}
	p.local, err = number(local)
	return p, err
}

// openSPDY upgrades a connection to the agent.
func (c *forwardCommand) openSPDY(ctx context.Context, path string) (httpstream.Connection, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://islet"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	req.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	req.Header.Set(httpstream.HeaderProtocolVersion, portforward.ProtocolV1Name)
	raw, err := client.Dial(ctx, c.Tool)
	if err != nil {
		return nil, client.Unreachable(c.Tool, err)
	}
	raw.SetDeadline(time.Now().Add(client.ResponseTimeout(c.Tool, http.MethodPost)))
	in := bufio.NewReader(raw)
	err = req.Write(raw)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(in, req)
	}
	if err != nil {
		raw.Close()
		return nil, client.Unreachable(c.Tool, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer raw.Close()
		defer resp.Body.Close()
		return nil, client.Refusal(resp)
	}
	raw.SetDeadline(time.Time{})
	return spdy.NewClientConnection(bufferedConn{raw, in})
}

// bufferedConn is a connection whose first data has already been read into a buffer.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func (a bufferedConn) Read(b []byte) (int, error) { return a.in.Read(b) }

// acceptConnections forwards connections to a port of the pod until ln is closed.
func (c *forwardCommand) acceptConnections(ctx context.Context, ln net.Listener, to httpstream.Connection, port uint16,
	all *sync.WaitGroup) {
	for {
		local, err := ln.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer local.Close()
			stop := context.AfterFunc(ctx, func() { resetConnection(local) })
			defer stop()
			err := c.forwardConnection(local.(*net.TCPConn), to, port)
			if err == nil {
				return
			}
			resetConnection(local)
			if ctx.Err() == nil {
				c.outputLock.Lock()
				defer c.outputLock.Unlock()
				fmt.Fprintf(c.Stderr, "islet: %s\n", printable.Line(err.Error()))
			}
		})
	}
}

// forwardConnection copies data between a local connection and the data stream of a pair of streams. The other stream of the
// pair is for errors. Each direction ends independently. If the data from the pod is incomplete, the local connection
// is reset.
func (c *forwardCommand) forwardConnection(local *net.TCPConn, to httpstream.Connection, port uint16) error {
	headers := http.Header{}
	headers.Set(portforward.PortHeader, strconv.Itoa(int(port)))
	headers.Set(portforward.PortForwardRequestIDHeader, local.RemoteAddr().String())
	headers.Set(portforward.StreamType, portforward.StreamTypeError)
	failed, err := to.CreateStream(headers)
	if err != nil {
		return err
	}
	defer to.RemoveStreams(failed)
	failed.Close() // the client sends no errors
	headers.Set(portforward.StreamType, portforward.StreamTypeData)
	data, err := to.CreateStream(headers)
	if err != nil {
		return err
	}
	defer to.RemoveStreams(data)
	var closed atomic.Bool // in the direction to the pod
	sent := make(chan struct{})
	go func() { // ends with the local connection or the stream
		defer close(sent)
		if _, err := io.Copy(data, local); err != nil {
			data.Reset() // the pod must not see this as the end of the data
			return
		}
		closed.Store(true)
		data.Close() // the pod sees the end of the data, and may still respond
	}()
	if _, err := io.Copy(local, data); err != nil { // the local client has disconnected
		data.Reset()
		resetConnection(local)
	} else if lostStream(to, data, &closed) {
		resetConnection(local)
	} else {
		local.CloseWrite() // the local client may still send data
	}
	<-sent
	text, err := io.ReadAll(io.LimitReader(failed, client.MaxMessage))
	if len(text) > 0 {
		return errors.New(string(text))
	}
	return err
}

// lostStream reports whether a stream was reset, or lost with its connection, instead of being closed. If the direction
// to the pod is already closed, lostStream detects only the loss of the connection. In that state, the error stream
// reports a reset of the data stream.
func lostStream(to httpstream.Connection, data httpstream.Stream, closed *atomic.Bool) bool {
	select {
	case <-to.CloseChan():
		return true
	default:
	}
	s, ok := data.(interface{ IsFinished() bool })
	return ok && s.IsFinished() && !closed.Load()
}

// resetConnection closes a connection in such a way that its peer receives an error instead of the end of the data.
func resetConnection(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}
