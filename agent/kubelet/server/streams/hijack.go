package streams

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/islet-edge/islet/internal/pulse"
	"github.com/islet-edge/islet/runtime/stream/linger"
)

// prepareHijack prepares a request for a library that will hijack its connection, and adds two functions that the library
// lacks. First, the context of the returned request ends when the client disconnects, also if the library does not read the
// client's data. Second, the connection is closed some time after the context has ended, even if the client does not read.
// The parameter later specifies this delay. When the library closes the connection, all written data is first delivered,
// however slow the client is. The function moved is called each time data is read or written. It may be nil.
func prepareHijack(
	w http.ResponseWriter, r *http.Request, later time.Duration, moved func(),
) (http.ResponseWriter, *http.Request, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	return &hijacker{w, ctx, func() { cancel(nil) }, later, moved}, r.WithContext(ctx), cancel
}

type hijacker struct {
	http.ResponseWriter
	ctx        context.Context
	cancel     context.CancelFunc
	closeDelay time.Duration
	onTransfer func()
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(h.ctx, func() { time.AfterFunc(h.closeDelay, func() { c.Close() }) })
	w := &watchedConn{Conn: c, ctx: h.ctx, cancel: h.cancel, onTransfer: h.onTransfer, closing: make(chan struct{}),
		closed: make(chan struct{})}
	go w.watchHangUp()
	// rw contains data that the client has already sent. This data is read first. All further data is read through w.
	ahead, _ := rw.Reader.Peek(rw.Reader.Buffered())
	r := io.MultiReader(strings.NewReader(string(ahead)), w)
	return w, bufio.NewReadWriter(bufio.NewReader(r), bufio.NewWriter(w)), nil
}

// Unwrap supports http.ResponseController.
func (h *hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// A watchedConn cancels a context when its peer disconnects.
type watchedConn struct {
	net.Conn
	ctx        context.Context
	cancel     context.CancelFunc
	onTransfer func() // may be nil
	reads      atomic.Uint64

	once            sync.Once
	closing, closed chan struct{} // closed when Close starts and returns
}

// watchHangUp cancels the context when the peer has disconnected, and nobody reads from the connection. It returns when the context has
// ended.
func (c *watchedConn) watchHangUp() {
	if pulse.AwaitHangUp(c.ctx, transport(c.Conn), &c.reads) {
		select {
		case <-c.closing: // Close reads the rest
		default:
			c.cancel()
		}
	}
}

// transport returns the connection that carries c.
func transport(c net.Conn) net.Conn {
	if t, ok := c.(interface{ Transport() net.Conn }); ok {
		return t.Transport()
	}
	return c
}

// Close waits until the peer has read everything or the context has ended. It then closes the connection.
func (c *watchedConn) Close() (err error) {
	c.once.Do(func() {
		close(c.closing)
		err = linger.Close(c.ctx, c.Conn)
		close(c.closed)
	})
	return err
}

// Read returns no data after Close has been called, but waits for the end of the connection. Close reads data from the
// connection too, so Read would return only fragments of the data. The library would treat the fragments as invalid,
// and would end the session before the peer has read everything.
func (c *watchedConn) Read(b []byte) (int, error) {
	select {
	case <-c.closing:
		<-c.closed
		return 0, net.ErrClosed
	default:
	}
	n, err := c.Conn.Read(b)
	c.reads.Add(1)
	if err != nil {
		c.cancel()
	} else if c.onTransfer != nil {
		c.onTransfer()
	}
	return n, err
}

// Write implements net.Conn.
func (c *watchedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n > 0 && c.onTransfer != nil {
		c.onTransfer()
	}
	return n, err
}
