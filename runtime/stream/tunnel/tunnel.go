package tunnel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/islet-edge/islet/runtime/stream/linger"
)

const (
	handshakeTime = 30 * time.Second
	closeTime     = time.Second
)

// Is says whether a client asks for a tunnel.
func Is(r *http.Request) bool {
	return websocket.IsWebSocketUpgrade(r) && slices.Contains(websocket.Subprotocols(r), portforward.WebsocketsSPDYTunnelingPortForwardV1)
}

// Serve lets next serve SPDY in a tunnel: it gets a request for that, whose connection
// is the tunnel. There is no tunnel before next asks for the connection: a request that it
// refuses gets its answer as any other, and holds nothing. Any page may be the request's
// origin, as for a kubelet: who asks is known by other things than a browser's cookie.
func Serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	in := r.Clone(r.Context())
	in.Method, in.Body = http.MethodPost, http.NoBody
	in.Header = http.Header{
		httpstream.HeaderConnection: {httpstream.HeaderUpgrade}, httpstream.HeaderUpgrade: {spdy.HeaderSpdy31},
		httpstream.HeaderProtocolVersion: {portforward.PortForwardV1Name},
	}
	tw := &tunnelWriter{ResponseWriter: w, r: r}
	defer tw.close()
	next.ServeHTTP(tw, in)
}

// A tunnel implements net.Conn.
type tunnel struct {
	ws      *websocket.Conn
	ctx     context.Context // of the request; its end is that of patience with the client
	message io.Reader       // the rest of one; nil: none has begun
	writing sync.Mutex
}

// Read reads on in the messages, and is io.EOF once the client has closed the tunnel.
func (t *tunnel) Read(b []byte) (int, error) {
	for {
		if t.message == nil {
			kind, m, err := t.ws.NextReader()
			if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway) {
				return 0, io.EOF
			}
			if err != nil {
				return 0, err
			}
			if kind != websocket.BinaryMessage {
				return 0, errors.New("a tunnel has binary messages only")
			}
			t.message = m
		}
		n, err := t.message.Read(b)
		if errors.Is(err, io.EOF) {
			t.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Write sends one message.
func (t *tunnel) Write(b []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if err := t.ws.WriteMessage(websocket.BinaryMessage, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close hangs up once the client has everything.
func (t *tunnel) Close() error {
	t.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(closeTime))
	return linger.Close(t.ctx, t.ws.NetConn())
}

// LocalAddr is the WebSocket's.
func (t *tunnel) LocalAddr() net.Addr { return t.ws.LocalAddr() }

// RemoteAddr is the WebSocket's.
func (t *tunnel) RemoteAddr() net.Addr { return t.ws.RemoteAddr() }

// SetDeadline is for both directions.
func (t *tunnel) SetDeadline(at time.Time) error {
	return errors.Join(t.SetReadDeadline(at), t.SetWriteDeadline(at))
}

// SetReadDeadline is the WebSocket's.
func (t *tunnel) SetReadDeadline(at time.Time) error { return t.ws.SetReadDeadline(at) }

// SetWriteDeadline is the WebSocket's.
func (t *tunnel) SetWriteDeadline(at time.Time) error { return t.ws.SetWriteDeadline(at) }

// A tunnelWriter answers the request in a tunnel: the upgrade to SPDY by opening the tunnel,
// anything else as the request's own writer does.
type tunnelWriter struct {
	http.ResponseWriter
	r *http.Request // for the tunnel
	t *tunnel       // nil: not open
}

// WriteHeader implements http.ResponseWriter.
func (w *tunnelWriter) WriteHeader(code int) {
	if code != http.StatusSwitchingProtocols { // else Hijack answers
		w.ResponseWriter.WriteHeader(code)
	}
}

// Hijack implements http.Hijacker: it opens the tunnel.
func (w *tunnelWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	up := websocket.Upgrader{
		Subprotocols: []string{portforward.WebsocketsSPDYTunnelingPortForwardV1}, HandshakeTimeout: handshakeTime,
		CheckOrigin: func(*http.Request) bool { return true },
	}
	ws, err := up.Upgrade(w.ResponseWriter, w.r, nil)
	if err != nil { // the client has its answer
		return nil, nil, fmt.Errorf("open a tunnel: %w", err)
	}
	w.t = &tunnel{ws: ws, ctx: w.r.Context()}
	return w.t, bufio.NewReadWriter(bufio.NewReader(w.t), bufio.NewWriter(w.t)), nil
}

func (w *tunnelWriter) close() {
	if w.t != nil {
		w.t.Close()
	}
}
