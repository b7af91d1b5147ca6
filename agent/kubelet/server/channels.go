package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
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

// channelProtocols are the WebSocket subprotocols: each message begins with the
// number of its channel; those with base64, which terminals in browsers speak, are
// text. (The library knows neither v5, nor when the client is gone, and holds
// messages of up to 32 MiB in memory.)
func channelProtocols() []string {
	return []string{
		remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name, "v4." + asText,
		remotecommand.StreamProtocolV1Name, asText,
	}
}

func isChannelProtocol(name string) bool { return slices.Contains(channelProtocols(), name) }

// anyOrigin lets a client name any page as its origin, as a kubelet does: the
// libraries of old clients invent one, and the API server passes it on. Who asks
// is known by a certificate or a token, never by a browser's cookie.
func anyOrigin(*http.Request) bool { return true }

const asText = "base64.channel.k8s.io"

const (
	pingEvery = 20 * time.Second
	maxFrame  = 32 << 10 // of output in one message
	maxSize   = 1 << 10  // of a message with the size of the terminal
)

// serveChannels runs a process over a WebSocket.
func (s *Server) serveChannels(w http.ResponseWriter, r *http.Request, p *process) {
	if offered := websocket.Subprotocols(r); len(offered) > 0 && !slices.ContainsFunc(offered, isChannelProtocol) {
		fail(w, refuse(http.StatusForbidden, "unable to upgrade: the client offers the subprotocols %s; this server knows %s, and takes none for %s",
			strings.Join(offered, ", "), strings.Join(channelProtocols(), ", "), remotecommand.StreamProtocolV1Name))
		return
	}
	up := websocket.Upgrader{Subprotocols: channelProtocols(), HandshakeTimeout: headerTimeout, CheckOrigin: anyOrigin}
	conn, err := up.Upgrade(w, r, nil) // it answers an error itself
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stdin, fromClient := io.Pipe()
	c := &channels{
		conn: conn, text: strings.HasSuffix(conn.Subprotocol(), asText), idle: s.StreamIdleTimeout,
		stdin: fromClient, sizes: newSizes(),
	}
	context.AfterFunc(ctx, func() { // the runtime sees the end of its streams too
		stdin.Close()
		fromClient.Close()
		time.AfterFunc(goodbye, func() { conn.Close() })
	})
	c.moved()
	// After the end of the process the client is only to take what is left. What it sends, and a
	// ping that comes too late, say nothing of it any more.
	running, ended := context.WithCancel(ctx)
	defer ended()
	gone := func() {
		if running.Err() == nil {
			cancel()
		}
	}
	var loops sync.WaitGroup
	hungUp := make(chan struct{})
	loops.Go(func() {
		c.receive(p.wants.Stdin)
		close(hungUp)
		gone()
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
	err = p.run(ctx, o, r)
	ended()
	stdin.Close() // lets a message go that nobody read
	c.finish(ctx, err, hungUp)
	cancel()
	loops.Wait()
}

// channels is one WebSocket connection that carries the streams of a session.
type channels struct {
	conn  *websocket.Conn
	text  bool // base64
	idle  time.Duration
	stdin *io.PipeWriter
	sizes sizes
	mu    sync.Mutex // of writing messages
}

// moved starts the idle time anew.
func (c *channels) moved() { c.conn.SetReadDeadline(time.Now().Add(c.idle)) }

// receive takes the client's messages until the connection ends.
func (c *channels) receive(stdin bool) {
	defer close(c.sizes)
	defer c.stdin.Close()
	for {
		_, m, err := c.conn.NextReader()
		if err != nil {
			return
		}
		c.moved()
		var number [1]byte
		if _, err := io.ReadFull(m, number[:]); err != nil {
			continue // an empty message
		}
		if c.text {
			number[0] -= '0'
			m = base64.NewDecoder(base64.StdEncoding, m)
		}
		switch number[0] {
		case remotecommand.StreamStdIn:
			if stdin {
				io.Copy(c.stdin, m) // waits for the process; an error is one that reads no more
			}
		case remotecommand.StreamResize:
			c.sizes.read(json.NewDecoder(io.LimitReader(m, maxSize))) // nonsense is nobody's size
		case remotecommand.StreamClose:
			if _, err := io.ReadFull(m, number[:]); err == nil && number[0] == remotecommand.StreamStdIn {
				c.stdin.Close()
			}
		}
	}
}

// ping finds out that the client is gone also while the process reads nothing. One that
// cannot be sent because the client is slow waits its turn like any output.
func (c *channels) ping(ctx context.Context, gone func()) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if c.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.idle)) != nil {
				gone()
				return
			}
		}
	}
}

// write sends one message of a channel.
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

// greet sends an empty message on the first channel of output: by it old clients
// learn that the session stands, and wait for it.
func (c *channels) greet(wants remotecommand.Options) {
	number := byte(remotecommand.StreamErr)
	switch {
	case wants.Stdout:
		number = remotecommand.StreamStdOut
	case wants.Stderr:
		number = remotecommand.StreamStdErr
	}
	c.write(number, nil) // an error is a client that has gone
}

// finish reports how the session ended and closes the connection once the client has answered
// the close message or has hung up, which hungUp tells, or ctx has ended. By then the client
// has read everything. An API server in between closes both of its connections when one has
// ended: what the client has not read by then would be lost as soon as it sends something. A
// client that does neither is let go when nothing has moved for the idle time.
func (c *channels) finish(ctx context.Context, err error, hungUp <-chan struct{}) {
	v4 := strings.HasPrefix(c.conn.Subprotocol(), "v") // or v5
	if !v4 && err == nil {
		c.bye() // before v4 what comes on this channel is an error
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

// A channel is an output of the process.
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

// Close does nothing: the status says the end.
func (channel) Close() error { return nil }
