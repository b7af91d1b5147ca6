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

// IsTunnel reports whether r requests a tunnel.
func IsTunnel(r *http.Request) bool {
	return websocket.IsWebSocketUpgrade(r) && slices.Contains(websocket.Subprotocols(r), portforward.WebsocketsSPDYTunnelingPortForwardV1)
}

// Serve passes a SPDY request to the handler. When the handler hijacks the connection, it gets a
// tunnel as the connection. If the handler rejects the request, the client receives a normal HTTP
// response. Like a kubelet, Serve accepts any origin. The caller must reject the requests of pages in
// browsers if it authenticates clients by certificates, because a browser sends certificates for any page.
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

// A tunnel is a net.Conn over a WebSocket.
type tunnel struct {
	ws      *websocket.Conn
	ctx     context.Context // context of the request; see linger.Close
	message io.Reader       // unread rest of the current message, or nil
	writing sync.Mutex
}

// Read reads the content of the messages. It returns io.EOF after the client has closed the tunnel.
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
				return 0, errors.New("a message in a tunnel is not binary")
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

// Write sends b as one message.
func (t *tunnel) Write(b []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if err := t.ws.WriteMessage(websocket.BinaryMessage, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close closes the tunnel after the client has received all data.
func (t *tunnel) Close() error {
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	t.ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(closeTime))
	return linger.Close(t.ctx, t.ws.NetConn())
}

// Transport returns the connection that carries the WebSocket.
func (t *tunnel) Transport() net.Conn { return t.ws.NetConn() }

// LocalAddr returns the WebSocket's local address.
func (t *tunnel) LocalAddr() net.Addr { return t.ws.LocalAddr() }

// RemoteAddr returns the WebSocket's remote address.
func (t *tunnel) RemoteAddr() net.Addr { return t.ws.RemoteAddr() }

// SetDeadline sets the deadlines of both directions.
func (t *tunnel) SetDeadline(at time.Time) error {
	return errors.Join(t.SetReadDeadline(at), t.SetWriteDeadline(at))
}

// SetReadDeadline sets the WebSocket's read deadline.
func (t *tunnel) SetReadDeadline(at time.Time) error { return t.ws.SetReadDeadline(at) }

// SetWriteDeadline sets the WebSocket's write deadline.
func (t *tunnel) SetWriteDeadline(at time.Time) error { return t.ws.SetWriteDeadline(at) }

// A tunnelWriter is the ResponseWriter of the SPDY request. Hijack opens the tunnel. A response
// without Hijack is written to the embedded ResponseWriter.
type tunnelWriter struct {
	http.ResponseWriter
	r *http.Request // the WebSocket request
	t *tunnel       // nil before Hijack
}

// WriteHeader implements http.ResponseWriter.
func (w *tunnelWriter) WriteHeader(code int) {
	if code != http.StatusSwitchingProtocols { // Hijack sends the response 101
		w.ResponseWriter.WriteHeader(code)
	}
}

// Hijack implements http.Hijacker. It opens the tunnel.
func (w *tunnelWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	up := websocket.Upgrader{
		Subprotocols: []string{portforward.WebsocketsSPDYTunnelingPortForwardV1}, HandshakeTimeout: handshakeTime,
		CheckOrigin: func(*http.Request) bool { return true },
	}
	ws, err := up.Upgrade(w.ResponseWriter, w.r, nil)
	if err != nil { // Upgrade has sent the response
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
