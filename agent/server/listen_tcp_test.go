package server

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// TestSessions: connections of one address are bounded, but for those that are sessions,
// such as kubectl exec and port-forward, which all come from the API server.
func TestSessions(t *testing.T) {
	ln, err := Listen(t.Context(), "127.0.0.1", 0, "a test", "port", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l := ln.(*boundedListener)
	counts := func() [2]int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return [2]int{l.all, l.sessions}
	}
	var sessions sync.WaitGroup
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/session" {
			return
		}
		sessions.Add(1)
		defer sessions.Done()
		w, _, _ = takeover(w, r, 0)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n"); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, rw) // until the client is gone
		c.Close()
	}))
	srv.Listener.Close()
	srv.Listener = l
	srv.StartTLS()
	defer srv.Close()
	dial := func(path string) net.Conn {
		t.Helper()
		c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return nil
		}
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: n\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	var open []net.Conn
	for i := range maxConnsFromIP + 10 {
		c := dial("/session")
		if c == nil {
			t.Fatalf("session %d is refused", i)
		}
		open = append(open, c)
	}
	if got := counts(); got != [2]int{0, maxConnsFromIP + 10} {
		t.Errorf("%d connections and %d sessions", got[0], got[1])
	}
	for i := range maxConnsFromIP {
		c := dial("/")
		if c == nil {
			t.Fatalf("connection %d is refused", i)
		}
		open = append(open, c)
	}
	if c := dial("/"); c != nil {
		t.Error("connections are not bounded")
	}
	for _, c := range open {
		c.Close()
	}
	srv.Close()
	sessions.Wait()
	if got := counts(); got != [2]int{} {
		t.Errorf("in the end %d connections and %d sessions", got[0], got[1])
	}
}
