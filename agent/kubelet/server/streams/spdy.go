package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/stream/frames"
)

// Timeouts of a client.
const (
	openTimeout = 30 * time.Second // to open its streams
	goodbyeTime = time.Second      // to read the message that the agent is stopping
)

// A muxedConn is a SPDY connection. It has a channel for the streams that the client opens.
type muxedConn struct {
	ctx     context.Context // ends when the connection ends; if it ends first, the connection is closed soon after
	conn    httpstream.Connection
	resets  frames.Resets
	streams chan httpstream.Stream
	waiting atomic.Int32 // number of streams that were not received from the channel yet
}

// maxWaiting is the maximum number of streams that a client can open before they are received from the channel.
const maxWaiting = 64

// upgradeSPDY upgrades a request to SPDY, passes the connection to the function use, and then closes the connection. The
// function must return soon after the context of the connection has ended. The handlers of the library are not used,
// because they leak goroutines and do not detect the end of a connection.
func (s *Streams) upgradeSPDY(w http.ResponseWriter, r *http.Request, protocols []string, use func(m *muxedConn, protocol string)) {
	protocol, err := httpstream.Handshake(r, w, protocols)
	if err != nil {
		return // Handshake has sent the response
	}
	idle := time.NewTimer(s.IdleTimeout)
	defer idle.Stop()
	w, r, cancel := prepareHijack(w, r, goodbyeTime, func() { idle.Reset(s.IdleTimeout) })
	defer cancel(nil)
	m := &muxedConn{ctx: r.Context(), streams: make(chan httpstream.Stream)}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(frames.LimitControlFrames(w, &m.resets), r, m.sendStream)
	if conn == nil {
		return // UpgradeResponse has sent the response
	}
	m.conn = conn
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.waitForEnd(conn, idle.C, cancel)
	}()
	use(m, protocol)
	conn.Close() // returns when the client has read the last frame
	<-closed
}

// sendStream sends a new stream to the channel. It uses a goroutine, because it must not wait itself: the stream can be
// used only after confirmed is closed, and confirmed is closed only after sendStream has returned.
func (m *muxedConn) sendStream(stream httpstream.Stream, confirmed <-chan struct{}) error {
	if m.waiting.Add(1) > maxWaiting {
		m.waiting.Add(-1)
		return errors.New("too many streams")
	}
	go func() {
		defer m.waiting.Add(-1)
		select {
		case <-confirmed:
		case <-m.ctx.Done():
			return
		}
		select {
		case m.streams <- stream:
		case <-m.ctx.Done():
		}
	}()
	return m.ctx.Err()
}

// serveSPDY connects a process to SPDY streams.
func (s *Streams) serveSPDY(w http.ResponseWriter, r *http.Request, p *process) {
	s.upgradeSPDY(w, r, remotecommand.SupportedStreamingProtocols, func(m *muxedConn, protocol string) {
		streams, err := m.receiveStreams(p.streamTypes(protocol))
		if err != nil {
			s.Log.Debug("a client did not open its streams", "container", p.id, "error", err)
			return
		}
		o := cri.ExecOptions{}
		if in := streams[remotecommand.StreamTypeStdin]; in != nil {
			o.Stdin = spdyInput{in, m}
		}
		if out := streams[remotecommand.StreamTypeStdout]; out != nil {
			o.Stdout = out
		}
		if out := streams[remotecommand.StreamTypeStderr]; out != nil {
			o.Stderr = out
		}
		if in := streams[remotecommand.StreamTypeResize]; in != nil {
			sizes := newSizes()
			o.Resize = sizes
			go sizes.readAll(in) // returns when the connection ends
		}
		text := statusText(p.run(m.ctx, o), protocol == remotecommand.StreamProtocolV4Name)
		streams[remotecommand.StreamTypeError].Write(text) // an error means that the client has disconnected
		if in := streams[remotecommand.StreamTypeStdin]; in != nil {
			in.Close()
			in.Reset() // discard unread input, behind which the end of the connection would not be seen
		}
		m.closeStreams(s.IdleTimeout, streams[remotecommand.StreamTypeStdout],
			streams[remotecommand.StreamTypeStderr], streams[remotecommand.StreamTypeError])
	})
}

// A spdyInput is the input of a process. Unlike the stream, it distinguishes the end of the input from the end of the session.
type spdyInput struct {
	httpstream.Stream
	m *muxedConn
}

// errInputLost is the error of an input whose client has disconnected.
var errInputLost = errors.New("the client disconnected before it ended its input")

// Read returns io.EOF if the client has ended its input, and errInputLost if its session ends. A client that resets the
// stream has not ended its input: client-go resets its streams when it leaves the session.
func (i spdyInput) Read(b []byte) (int, error) {
	n, err := i.Stream.Read(b)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if i.m.resets.Has(i.Stream) || i.m.ctx.Err() != nil {
		return n, errInputLost
	}
	select {
	case <-i.m.conn.CloseChan():
		return n, errInputLost
	default:
		return n, err
	}
}

// closeStreams closes streams and waits until the client disconnects. The client does so when it has read everything.
//
// The node must not close the connection first. Otherwise an API server between the client and the node would close its
// connection to the client too, and output that the client has not read would be lost as soon as the client sends
// something, such as a ping. client-go would treat this as a success.
func (m *muxedConn) closeStreams(patience time.Duration, streams ...httpstream.Stream) {
	for _, stream := range streams {
		if stream != nil {
			stream.Close()
		}
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-m.ctx.Done(): // the client has disconnected, or the agent is stopping
	case <-late.C:
	}
}

// streamTypes returns the types of the streams that the client will open.
func (p *process) streamTypes(protocol string) []string {
	types := []string{remotecommand.StreamTypeError}
	add := func(is bool, name string) {
		if is {
			types = append(types, name)
		}
	}
	resizes := []string{remotecommand.StreamProtocolV4Name, remotecommand.StreamProtocolV3Name}
	add(p.options.Stdin, remotecommand.StreamTypeStdin)
	add(p.options.Stdout, remotecommand.StreamTypeStdout)
	add(p.options.Stderr, remotecommand.StreamTypeStderr)
	add(p.options.TTY && slices.Contains(resizes, protocol), remotecommand.StreamTypeResize)
	return types
}

// receiveStreams receives one stream of each type. It returns an error if the client opens another stream, or does not open all of
// them within openTimeout.
func (m *muxedConn) receiveStreams(types []string) (map[string]httpstream.Stream, error) {
	late := time.NewTimer(openTimeout)
	defer late.Stop()
	got := map[string]httpstream.Stream{}
	for len(got) < len(types) {
		select {
		case stream := <-m.streams:
			name := stream.Headers().Get(remotecommand.StreamType)
			if !slices.Contains(types, name) || got[name] != nil {
				return nil, fmt.Errorf("unexpected stream of type %q", name)
			}
			got[name] = stream
		case <-late.C:
			return nil, fmt.Errorf("%d of %d streams after %s", len(got), len(types), openTimeout)
		case <-m.ctx.Done():
			return nil, m.ctx.Err()
		}
	}
	return got, nil
}
