package tunnel_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/islet-edge/islet/runtime/stream/tunnel"
)

// open opens a tunnel. The given handler serves the requests of the tunnel.
func open(t *testing.T, next http.HandlerFunc) *websocket.Conn {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !tunnel.IsTunnel(r) {
			t.Error("not a tunnel")
		}
		tunnel.Serve(w, r, next)
	}))
	t.Cleanup(srv.Close)
	d := websocket.Dialer{Subprotocols: []string{portforward.WebsocketsSPDYTunnelingPortForwardV1}}
	c, _, err := d.Dial("ws"+strings.TrimPrefix(srv.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestBytes checks that a tunnel transfers a stream of bytes in each direction. The sizes of the messages do not matter.
func TestBytes(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(httpstream.HeaderUpgrade) == "" ||
			r.Header.Get(httpstream.HeaderProtocolVersion) != portforward.PortForwardV1Name || r.Method != http.MethodPost {
			t.Errorf("%s, %v", r.Method, r.Header)
		}
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		b := make([]byte, 10)
		if _, err := io.ReadFull(rw, b); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(conn, "<%s>", b)
		if n, err := rw.Read(b); n != 0 || err != io.EOF {
			t.Errorf("after the end: %d, %v", n, err)
		}
	})
	for _, part := range []string{"", "a", "bcdefg", "", "hij"} {
		if err := c.WriteMessage(websocket.BinaryMessage, []byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if kind, b, err := c.ReadMessage(); kind != websocket.BinaryMessage || string(b) != "<abcdefghij>" || err != nil {
		t.Errorf("%d, %q, %v", kind, b, err)
	}
	if err := c.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")); err != nil {
		t.Error(err)
	}
	if _, _, err := c.ReadMessage(); err == nil {
		t.Error("the tunnel was not closed")
	}
}

// TestRefused checks a request for a tunnel that the handler rejects. The client gets the HTTP response. The connection is not hijacked.
func TestRefused(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnel.Serve(w, r, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no such thing", http.StatusNotFound)
		}))
	}))
	var hijacked atomic.Bool
	srv.Config.ConnState = func(_ net.Conn, is http.ConnState) {
		if is == http.StateHijacked {
			hijacked.Store(true)
		}
	}
	srv.Start()
	defer srv.Close()
	d := websocket.Dialer{Subprotocols: []string{portforward.WebsocketsSPDYTunnelingPortForwardV1}}
	_, resp, err := d.Dial("ws"+strings.TrimPrefix(srv.URL, "http"), nil)
	if err == nil || resp == nil || resp.StatusCode != http.StatusNotFound {
		t.Fatalf("got %v, %v", resp, err)
	}
	if text, err := io.ReadAll(resp.Body); string(text) != "no such thing\n" || err != nil || hijacked.Load() {
		t.Errorf("%q, %v, hijacked %t", text, err, hijacked.Load())
	}
}

// TestText checks that a text message ends the tunnel.
func TestText(t *testing.T) {
	ended := make(chan error, 1)
	c := open(t, func(w http.ResponseWriter, _ *http.Request) {
		_, rw, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, err = rw.ReadByte()
		}
		ended <- err
	})
	if err := c.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "binary") {
		t.Errorf("got %v", err)
	}
}

// TestIs checks that a request for a tunnel must be a WebSocket request with the tunnel's subprotocol.
func TestIs(t *testing.T) {
	for protocol, want := range map[string]bool{"": false, "v4.channel.k8s.io": false, "v4.channel.k8s.io, SPDY/3.1+portforward.k8s.io": true} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Sec-WebSocket-Protocol", protocol)
		if tunnel.IsTunnel(r) != want {
			t.Errorf("%q: %t", protocol, tunnel.IsTunnel(r))
		}
		r.Header.Del("Upgrade")
		if tunnel.IsTunnel(r) {
			t.Errorf("%q, no WebSocket: the request is for a tunnel", protocol)
		}
	}
}
