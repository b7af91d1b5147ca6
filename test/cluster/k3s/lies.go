package k3s

import (
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/websocket"
)

// Instead replaces the answer of a path, before the server authenticates the request. nil ends it.
func (s *Server) Instead(path string, h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h == nil {
		delete(s.lies, path)
		return
	}
	s.lies[path] = h
}

// Misissue lets a test change each certificate before it is signed: its names, its CA, its key, its validity. nil ends it.
func (s *Server) Misissue(change func(*Issue)) { s.mu.Lock(); defer s.mu.Unlock(); s.misissue = change }

// Heal ends Instead and Misissue.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.lies)
	s.misissue = nil
}

// Lies returns how often a client has got a lie.
func (s *Server) Lies() int { s.mu.Lock(); defer s.mu.Unlock(); return s.lied }

// ServeCertificateOf replaces the certificate of the listener with one of another CA for the same addresses.
func (s *Server) ServeCertificateOf(a *Authority) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.served.Leaf
	cert, err := a.pair(Subject{Name: "k3s", Groups: []string{"k3s"}, Usage: x509.ExtKeyUsageServerAuth, DNS: old.DNSNames,
		IPs: old.IPAddresses})
	if err == nil {
		s.served, s.foreign = &cert, true
	}
	return err
}

// Text answers with a text of any content.
func Text(b []byte) http.Handler { return write("text/plain", func() []byte { return b }) }

// Status answers with an error. If retry is not zero, the answer contains a Retry-After.
func Status(code int, retry time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if retry > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(retry.Seconds())))
		}
		refuse(w, r, code, fmt.Errorf("a lie with the status %d", code))
	})
}

// Hang does not answer while the client waits.
func Hang() http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client is gone
		<-r.Context().Done()
	})
}

// HangAfter answers with a text and then does not end the answer.
func HangAfter(b []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(b)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
}

// Endless repeats a text until the client is gone.
func Endless(b []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	})
}

// Truncated announces a whole text, sends the first n bytes of it and closes the connection.
func Truncated(b []byte, n int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		_, _ = w.Write(b[:n])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
}

// Redirect answers with a redirection.
func Redirect(to string) http.Handler { return http.RedirectHandler(to, http.StatusFound) }

// RawTunnel accepts the WebSocket of a tunnel and passes it to f, which speaks remotedialer's protocol in its own way. The connection is
// closed when f returns.
func RawTunnel(f func(*websocket.Conn)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			return // Upgrade has answered
		}
		defer conn.Close()
		f(conn)
	})
}

// The kinds of remotedialer's messages that a server sends. remotedialer message.go.
const (
	FrameData    = 1
	FrameConnect = 2
	FrameError   = 3
	FramePause   = 6
	FrameResume  = 7
	FrameSync    = 8
)

// Frame returns a message of remotedialer: the numbers of the message, of the connection and of the kind, a deadline if the message has
// data or a target, and the rest. Each number is a variable-length integer. The rest of FrameConnect is "tcp/HOST:PORT".
// remotedialer message.go.
func Frame(id, connection, kind int64, rest []byte) []byte {
	b := binary.AppendVarint(nil, id)
	b = binary.AppendVarint(b, connection)
	b = binary.AppendVarint(b, kind)
	if kind == FrameData || kind == FrameConnect {
		b = binary.AppendVarint(b, 15000)
	}
	return append(b, rest...)
}
