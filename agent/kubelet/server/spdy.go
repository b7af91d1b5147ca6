package server

import (
	"context"
	"errors"
	"fmt"
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

// openTimeout bounds the time for a client to open its streams; goodbye bounds the time to read the
// message that the agent is stopping.
const (
	openTimeout = 30 * time.Second
	goodbye     = time.Second
)

// A muxed is a SPDY connection whose streams arrive on a channel.
type muxed struct {
	ctx     context.Context // ends with the connection, and ends the connection soon after
	conn    httpstream.Connection
	streams chan httpstream.Stream
	waiting atomic.Int32 // streams that have not been received
}

// maxWaiting bounds the unneeded streams that a client opens.
const maxWaiting = 64

// upgrade upgrades a request to SPDY, calls use with the connection and closes it. use must return
// soon after the connection's context has ended. (The library's own handlers do not detect the end
// of a connection and leak goroutines.)
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, protocols []string, use func(m *muxed, protocol string)) {
	protocol, err := httpstream.Handshake(r, w, protocols)
	if err != nil {
		return // the response has been sent
	}
	idle := time.NewTimer(s.StreamIdleTimeout)
	defer idle.Stop()
	w, r, cancel := takeover(w, r, goodbye, func() { idle.Reset(s.StreamIdleTimeout) })
	defer cancel(nil)
	m := &muxed{ctx: r.Context(), streams: make(chan httpstream.Stream)}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(frames.Bound(w), r, m.arrived)
	if conn == nil {
		return // the response has been sent
	}
	m.conn = conn
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		select {
		case <-conn.CloseChan():
		case <-idle.C: // the library's own timeout closes the connection without a message
			cancel(idleError(s.StreamIdleTimeout))
			<-conn.CloseChan()
		}
		cancel(nil)
	}()
	use(m, protocol)
	conn.Close() // waits until the client has read the last frame
	<-closed     // the client has read everything and disconnected
}

// arrived delivers a stream once its opening is confirmed, which happens after arrived returns.
func (m *muxed) arrived(stream httpstream.Stream, confirmed <-chan struct{}) error {
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
func (s *Server) serveSPDY(w http.ResponseWriter, r *http.Request, p *process) {
	s.upgrade(w, r, remotecommand.SupportedStreamingProtocols, func(m *muxed, protocol string) {
		streams, err := m.await(p.streamTypes(protocol))
		if err != nil {
			s.Log.Debug("a client did not open its streams", "container", p.id, "error", err)
			return
		}
		o := cri.ExecOptions{}
		if in := streams[remotecommand.StreamTypeStdin]; in != nil {
			o.Stdin = in
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
			go sizes.readAll(in) // ends with the connection
		}
		text := statusText(p.run(m.ctx, o), protocol == remotecommand.StreamProtocolV4Name)
		streams[remotecommand.StreamTypeError].Write(text) // an error: the client has disconnected
		if in := streams[remotecommand.StreamTypeStdin]; in != nil {
			in.Close()
			in.Reset() // without notifying the client: unread input would hide its end
		}
		m.letGo(s.StreamIdleTimeout, streams[remotecommand.StreamTypeStdout],
			streams[remotecommand.StreamTypeStderr], streams[remotecommand.StreamTypeError])
	})
}

// letGo closes streams and waits until the client, which then knows that it has everything,
// disconnects. An API server in between closes both of its connections when one ends: if this side
// closed first, output that the client has not read would be lost as soon as the client sends
// something, such as a ping, and client-go would treat that as success.
func (m *muxed) letGo(patience time.Duration, streams ...httpstream.Stream) {
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

// streamTypes returns the streams that the client will open.
func (p *process) streamTypes(protocol string) []string {
	types := []string{remotecommand.StreamTypeError}
	add := func(is bool, name string) {
		if is {
			types = append(types, name)
		}
	}
	resizes := []string{remotecommand.StreamProtocolV4Name, remotecommand.StreamProtocolV3Name}
	add(p.wants.Stdin, remotecommand.StreamTypeStdin)
	add(p.wants.Stdout, remotecommand.StreamTypeStdout)
	add(p.wants.Stderr, remotecommand.StreamTypeStderr)
	add(p.wants.TTY && slices.Contains(resizes, protocol), remotecommand.StreamTypeResize)
	return types
}

// await collects one stream of each type.

// await collects one stream of each type.
func (m *muxed) await(types []string) (map[string]httpstream.Stream, error) {
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
