package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/islet-edge/islet/runtime/stream/linger"
)

// proxy passes the request on to a runtime behind a socket.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, ask func() (string, error)) {
	target, err := ask()
	if err != nil {
		fail(w, err)
		return
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		fail(w, fmt.Errorf("the runtime gave %q for its streams", target))
		return
	}
	w, r, cancel := takeover(w, r, 0)
	defer cancel()
	(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.Out.URL, p.Out.Host = u, u.Host }}).ServeHTTP(w, r)
}

// takeover prepares a request whose connection a library will take over: the
// context of the new request ends when the client is gone, and the connection
// is closed some time after the context has ended, even if the client takes
// nothing more. The library does neither. Where the library closes the connection
// the client first gets everything that was written, however slow it is.
func takeover(w http.ResponseWriter, r *http.Request, later time.Duration) (http.ResponseWriter, *http.Request, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	return &hijacker{w, ctx, cancel, later}, r.WithContext(ctx), cancel
}

type hijacker struct {
	http.ResponseWriter
	ctx   context.Context
	gone  context.CancelFunc
	later time.Duration
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(h.ctx, func() { time.AfterFunc(h.later, func() { c.Close() }) })
	w := &watchedConn{Conn: c, ctx: h.ctx, gone: h.gone, closing: make(chan struct{}), closed: make(chan struct{})}
	// What the client sent already is in rw; the rest is read by way of w.
	ahead, _ := rw.Reader.Peek(rw.Reader.Buffered())
	r := io.MultiReader(strings.NewReader(string(ahead)), w)
	return w, bufio.NewReadWriter(bufio.NewReader(r), bufio.NewWriter(w)), nil
}

// Unwrap serves http.ResponseController.
func (h *hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// A watchedConn ends a context when its peer is gone.
type watchedConn struct {
	net.Conn
	ctx  context.Context
	gone context.CancelFunc

	once            sync.Once
	closing, closed chan struct{} // closed when Close begins and ends
}

// Close waits until the peer has everything, or the context has ended.
func (c *watchedConn) Close() (err error) {
	c.once.Do(func() {
		close(c.closing)
		err = linger.Close(c.ctx, c.Conn)
		close(c.closed)
	})
	return err
}

// Read waits for the end once Close was called: what comes then is thrown away. The library would
// get parts of it, take them for nonsense, and end the session before the peer has everything.
func (c *watchedConn) Read(b []byte) (int, error) {
	select {
	case <-c.closing:
		<-c.closed
		return 0, net.ErrClosed
	default:
	}
	n, err := c.Conn.Read(b)
	if err != nil {
		c.gone()
	}
	return n, err
}
