package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream/linger"
)

// channelProtocols are the WebSocket subprotocols: each message begins with its channel number. The
// base64 ones, used by terminals in browsers, are text. (The library supports neither v5 nor
// detecting a disconnected client, and buffers messages of up to 32 MiB.)
func channelProtocols() []string {
	return []string{
		remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name, "v4." + asText,
		remotecommand.StreamProtocolV1Name, asText,
	}
}

func isChannelProtocol(name string) bool { return slices.Contains(channelProtocols(), name) }

// anyOrigin accepts every Origin header, as a kubelet does: libraries of old clients invent one,
// and the API server passes it on. Requests are authenticated by certificate or token, never by a
// cookie.
func anyOrigin(*http.Request) bool { return true }

const asText = "base64.channel.k8s.io"

const (
	pingEvery = 20 * time.Second
	maxFrame  = 32 << 10 // of output per message
	maxSize   = 1 << 10  // of a message with the terminal's size
)

// serveChannels connects a process to a WebSocket.
func (s *Server) serveChannels(w http.ResponseWriter, r *http.Request, p *process) {
	if offered := websocket.Subprotocols(r); len(offered) > 0 && !slices.ContainsFunc(offered, isChannelProtocol) {
		fail(w, refuse(http.StatusForbidden, "unable to upgrade: the client offers the subprotocols %s; this "+
			"server supports %s, and assumes %s without one",
			strings.Join(offered, ", "), strings.Join(channelProtocols(), ", "), remotecommand.StreamProtocolV1Name))
		return
	}
	up := websocket.Upgrader{Subprotocols: channelProtocols(), HandshakeTimeout: headerTimeout, CheckOrigin: anyOrigin}
	conn, err := up.Upgrade(w, r, nil) // it sends the error response itself
	if err != nil {
		return
	}
	ctx, cancel, release := sessionContext(r)
	defer release()
	stdin, fromClient := io.Pipe()
	c := &channels{
		conn: conn, text: strings.HasSuffix(conn.Subprotocol(), asText), idle: s.StreamIdleTimeout,
		stdin: fromClient, sizes: newSizes(),
	}
	context.AfterFunc(ctx, func() { // so that the runtime sees the end of its streams
		stdin.Close()
		fromClient.Close()
		time.AfterFunc(goodbye, func() { conn.Close() })
	})
	c.moved()
	// After the end of the process the client only has to read the rest of the output. Its messages
	// and a late ping do not matter any more.
	running, ended := context.WithCancel(ctx)
	defer ended()
	gone := func(err error) {
		if running.Err() == nil {
			cancel(s.causeOf(err))
		}
	}
	var loops sync.WaitGroup
	hungUp := make(chan struct{})
	loops.Go(func() {
		err := c.receive(p.wants.Stdin)
		close(hungUp)
		gone(err)
	})
	loops.Go(func() { c.ping(running, gone) })
	c.greet(p.wants)
	o := cri.ExecOptions{Resize: c.sizes}
	if p.wants.Stdin {
		o.Stdin = stdin
	}
	if p.wants.Stdout {
		o.Stdout = channel{c, remotecommand.StreamStdOut}
	}
	if p.wants.Stderr {
		o.Stderr = channel{c, remotecommand.StreamStdErr}
	}
	err = p.run(ctx, o)
	ended()
	stdin.Close() // unblocks a message that is not read
	c.finish(ctx, err, hungUp)
	cancel(nil)
	loops.Wait()
}

// causeOf returns the cause of a session's end for an error of its connection: nil if the client has disconnected.
func (s *Server) causeOf(err error) error {
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return idleError(s.StreamIdleTimeout)
	}
	return nil
}

// sessionContext returns a context that ends when the agent stops or cancel is called. The request's own
// context cannot be used, because net/http cancels it at any read error, also after the idle timeout.
func sessionContext(r *http.Request) (ctx context.Context, cancel context.CancelCauseFunc, release func()) {
	ctx, cancel = context.WithCancelCause(context.WithoutCancel(r.Context()))
	stop := context.AfterFunc(r.Context(), func() {
		if errors.Is(context.Cause(r.Context()), errStopping) {
			cancel(errStopping)
		}
	})
	return ctx, cancel, func() {
		stop()
		cancel(nil)
	}
}

// channels is a WebSocket connection with the streams of a session.
type channels struct {
	conn  *websocket.Conn
	text  bool // base64
	idle  time.Duration
	stdin *io.PipeWriter
	sizes sizes
	mu    sync.Mutex // serializes messages
}

// moved restarts the idle timeout.
func (c *channels) moved() { c.conn.SetReadDeadline(time.Now().Add(c.idle)) }

// receive reads the client's messages until the connection ends, and returns why it did.
func (c *channels) receive(stdin bool) error {
	defer close(c.sizes)
	defer c.stdin.Close()
	for {
		_, m, err := c.conn.NextReader()
		if err != nil {
			return err
		}
		c.moved()
		var number [1]byte
		if _, err := io.ReadFull(m, number[:]); err != nil {
			continue // empty message
		}
		if c.text {
			number[0] -= '0'
			m = base64.NewDecoder(base64.StdEncoding, m)
		}
		switch number[0] {
		case remotecommand.StreamStdIn:
			if stdin {
				io.Copy(c.stdin, m) // waits for the process; an error: it reads no more
			}
		case remotecommand.StreamResize:
			c.sizes.read(json.NewDecoder(io.LimitReader(m, maxSize))) // invalid sizes are ignored
		case remotecommand.StreamClose:
			if _, err := io.ReadFull(m, number[:]); err == nil && number[0] == remotecommand.StreamStdIn {
				c.stdin.Close()
			}
		}
	}
}

// ping detects that the client has disconnected, even if the process reads nothing. A ping to a
// slow client waits like output.
func (c *channels) ping(ctx context.Context, gone func(error)) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := c.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.idle)); err != nil {
				gone(err)
				return
			}
		}
	}
}

// write sends one message on a channel.
func (c *channels) write(number byte, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved()
	c.conn.SetWriteDeadline(time.Now().Add(c.idle))
	kind := websocket.BinaryMessage
	if c.text {
		kind, number, b = websocket.TextMessage, number+'0', base64.StdEncoding.AppendEncode(nil, b)
	}
	m, err := c.conn.NextWriter(kind)
	if err != nil {
		return err
	}
	if _, err := m.Write([]byte{number}); err != nil {
		return err
	}
	if _, err := m.Write(b); err != nil {
		return err
	}
	return m.Close()
}

// greet sends an empty message on the first output channel. Old clients wait for it to know that
// the session is open.
func (c *channels) greet(wants remotecommand.Options) {
	number := byte(remotecommand.StreamErr)
	switch {
	case wants.Stdout:
		number = remotecommand.StreamStdOut
	case wants.Stderr:
		number = remotecommand.StreamStdErr
	}
	c.write(number, nil) // an error: the client has disconnected
}

// finish reports the session's result, and closes the connection once the client has answered the
// close message or disconnected (hungUp), or ctx has ended; by then the client has read everything.
// An API server in between closes both of its connections when one ends: if this side closed first,
// unread output would be lost as soon as the client sends something. A client that does neither is
// disconnected after the idle timeout.
func (c *channels) finish(ctx context.Context, err error, hungUp <-chan struct{}) {
	v4 := strings.HasPrefix(c.conn.Subprotocol(), "v") // or v5
	if !v4 && err == nil {
		c.bye() // before v4 anything on this channel is an error
	} else if c.write(remotecommand.StreamErr, statusText(err, v4)) == nil {
		c.bye()
	}
	select {
	case <-hungUp:
	case <-ctx.Done():
	}
	linger.Close(ctx, c.conn.NetConn())
}

func (c *channels) bye() {
	c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(c.idle))
}

// A channel is an output stream of the process.
type channel struct {
	c      *channels
	number byte
}

func (ch channel) Write(b []byte) (int, error) {
	sent := 0
	for part := range slices.Chunk(b, maxFrame) {
		if err := ch.c.write(ch.number, part); err != nil {
			return sent, err
		}
		sent += len(part)
	}
	return sent, nil
}

// Close does nothing: the status message marks the end.
func (channel) Close() error { return nil }
