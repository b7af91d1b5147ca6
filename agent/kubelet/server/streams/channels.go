package streams

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream/linger"
)

// channelProtocols returns the supported WebSocket subprotocols. In each of them a message begins with its
// channel number. The subprotocols with base64 send text messages. Terminals in browsers use them. The
// implementation in k8s.io/cri-streaming is not used, because it does not support v5, does not detect that a
// client has disconnected, and buffers messages of up to 32 MiB.
func channelProtocols() []string {
	return []string{
		remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name, "v4." + asText,
		remotecommand.StreamProtocolV1Name, asText,
	}
}

func isChannelProtocol(name string) bool { return slices.Contains(channelProtocols(), name) }

// anyOrigin accepts every Origin header, as a kubelet does. Libraries of old clients send an arbitrary Origin header,
// and the API server forwards this header. server.RunAPI has already rejected the WebSockets of pages in browsers, which
// would use the browser's client certificate.
func anyOrigin(*http.Request) bool { return true }

const asText = "base64.channel.k8s.io"

const (
	handshakeTimeout = 10 * time.Second
	pingEvery        = 20 * time.Second
	maxFrame         = 32 << 10 // maximum output per message
	maxSize          = 1 << 10  // maximum length of a message with the size of the terminal
)

// serveChannels connects a process to a WebSocket.
func (s *Streams) serveChannels(w http.ResponseWriter, r *http.Request, p *process) {
	if offered := websocket.Subprotocols(r); len(offered) > 0 && !slices.ContainsFunc(offered, isChannelProtocol) {
		response.WriteError(w, response.Refuse(http.StatusForbidden, "unable to upgrade: the client offers the subprotocols %s; this "+
			"server supports %s, and assumes %s without one",
			strings.Join(offered, ", "), strings.Join(channelProtocols(), ", "), remotecommand.StreamProtocolV1Name))
		return
	}
	up := websocket.Upgrader{Subprotocols: channelProtocols(), HandshakeTimeout: handshakeTimeout, CheckOrigin: anyOrigin}
	conn, err := up.Upgrade(w, r, nil) // Upgrade has sent the response if it returns an error
	if err != nil {
		return
	}
	ctx, cancel, release := sessionContext(r)
	defer release()
	stdin, fromClient := io.Pipe()
	c := &channels{
		conn: conn, text: strings.HasSuffix(conn.Subprotocol(), asText), idle: s.IdleTimeout,
		stdin: fromClient, sizes: newSizes(),
	}
	context.AfterFunc(ctx, func() { // close the streams of the runtime
		stdin.Close()
		fromClient.Close()
		time.AfterFunc(goodbyeTime, func() { conn.Close() })
	})
	c.restartIdleTimeout()
	// When the process has ended, an error of receiveMessages or ping no longer ends the session, because the client may
	// still be reading the rest of the output.
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
		err := c.receiveMessages(p.options.Stdin)
		close(hungUp)
		gone(err)
		c.stdin.CloseWithError(errInputLost)
	})
	loops.Go(func() { c.ping(running, gone) })
	c.sendGreeting(p.options)
	o := cri.ExecOptions{Resize: c.sizes}
	if p.options.Stdin {
		o.Stdin = stdin
	}
	if p.options.Stdout {
		o.Stdout = channel{c, remotecommand.StreamStdOut}
	}
	if p.options.Stderr {
		o.Stderr = channel{c, remotecommand.StreamStdErr}
	}
	err = p.run(ctx, o)
	ended()
	stdin.Close() // unblocks receive if it is writing input that the process has not read
	c.finishSession(ctx, err, hungUp)
	cancel(nil)
	loops.Wait()
}

// sessionContext returns a context that ends when the agent stops or when cancel is called. The request's own context
// cannot be used. net/http cancels it after any read error, and thus also after the idle timeout.
func sessionContext(r *http.Request) (ctx context.Context, cancel context.CancelCauseFunc, release func()) {
	ctx, cancel = context.WithCancelCause(context.WithoutCancel(r.Context()))
	stop := context.AfterFunc(r.Context(), func() {
		if errors.Is(context.Cause(r.Context()), ErrStopping) {
			cancel(ErrStopping)
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

// receiveMessages reads the client's messages until the connection ends. It returns the error that ended the
// connection. It does not close c.stdin, because the end of the connection is not the end of the input.
func (c *channels) receiveMessages(stdin bool) error {
	defer close(c.sizes)
	for {
		_, m, err := c.conn.NextReader()
		if err != nil {
			return err
		}
		c.restartIdleTimeout()
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
				io.Copy(c.stdin, m) // an error means that the process does not read any more
			}
		case remotecommand.StreamResize:
			c.sizes.sendSize(json.NewDecoder(io.LimitReader(m, maxSize))) // an invalid size is ignored
		case remotecommand.StreamClose:
			if _, err := io.ReadFull(m, number[:]); err == nil && number[0] == remotecommand.StreamStdIn {
				c.stdin.Close()
			}
		}
	}
}

// ping detects that the client has disconnected, even if the process reads no input. A ping has to wait for output that
// is being sent to a slow client, so the timeout of a ping is the idle timeout.
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

// write sends a message on the channel with the given number.
func (c *channels) write(number byte, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restartIdleTimeout()
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

// sendGreeting sends an empty message on the first output channel. Old clients wait for this message before they treat the session
// as open.
func (c *channels) sendGreeting(wants remotecommand.Options) {
	number := byte(remotecommand.StreamErr)
	switch {
	case wants.Stdout:
		number = remotecommand.StreamStdOut
	case wants.Stderr:
		number = remotecommand.StreamStdErr
	}
	c.write(number, nil) // an error means that the client has disconnected
}

// finishSession sends the result of the session and a close message. It then waits until hungUp is closed or ctx has ended,
// and closes the connection. The channel hungUp is closed when the client has answered the close message or
// disconnected, and thus has read everything. It is also closed after the idle timeout.
//
// The node must not close the connection first. Otherwise an API server between the client and the node would close its
// connection to the client too, and output that the client has not read would be lost as soon as the client sends
// something.
func (c *channels) finishSession(ctx context.Context, err error, hungUp <-chan struct{}) {
	v4 := strings.HasPrefix(c.conn.Subprotocol(), "v") // or later
	if !v4 && err == nil {
		c.sendGoAway() // before v4, any message on the error channel means a failure
	} else if c.write(remotecommand.StreamErr, statusText(err, v4)) == nil {
		c.sendGoAway()
	}
	select {
	case <-hungUp:
	case <-ctx.Done():
	}
	linger.Close(ctx, c.conn.NetConn())
}

func (c *channels) sendGoAway() {
	c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(c.idle))
}

// A channel is the writer for an output stream of the process.
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

// Close does nothing, because the status message marks the end of the output.
func (channel) Close() error { return nil }
