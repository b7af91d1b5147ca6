package call

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	health "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
)

// newCaller returns a Caller with the given feature gates.
func newCaller(gates ...string) *Caller {
	return New(Config{Version: "1.37", GateEnabled: func(name string) bool { return slices.Contains(gates, name) }})
}

// TestClearHTTP2 checks that a probe uses HTTP/2 without TLS if the probe requests it and the feature gate is on. The limits of time and
// size are the same as with HTTP/1.1. Hooks use HTTP/1.1, and so do probes if the gate is off.
func TestClearHTTP2(t *testing.T) {
	open := make(chan http.ConnState, 100)
	var s *httptest.Server
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			<-r.Context().Done()
		case "/headers":
			for i := range 200 {
				w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 1<<10))
			}
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("y", 1<<12)); err != nil {
					return
				}
			}
		case "/moved":
			http.Redirect(w, r, "/", http.StatusFound)
		default:
			fmt.Fprint(w, r.Proto, " ", r.UserAgent())
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) { open <- state }
	s.Start()
	defer s.Close()
	const gate = "H2CContainerProbe"
	get := func(c *Caller, path string, protocol *v1.HTTPProtocol, purpose string, timeout time.Duration) (Response, error) {
		a := &v1.HTTPGetAction{Scheme: v1.URISchemeHTTP, Path: path, Port: portOf(t, s.URL), Protocol: protocol}
		return c.Get(t.Context(), target(), a, purpose, timeout)
	}
	http2 := new(v1.HTTPProtocolHTTP2)
	for _, tt := range []struct {
		name     string
		c        *Caller
		path     string
		protocol *v1.HTTPProtocol
		purpose  string
		want     string
	}{
		{"HTTP/2", newCaller(gate), "/", http2, Probe, "HTTP/2.0 kube-probe/1.37"},
		{"redirect", newCaller(gate), "/moved", http2, Probe, "HTTP/2.0 kube-probe/1.37"},
		{"HTTP/1", newCaller(gate), "/", new(v1.HTTPProtocolHTTP1), Probe, "HTTP/1.1 kube-probe/1.37"},
		{"no protocol", newCaller(gate), "/", nil, Probe, "HTTP/1.1 kube-probe/1.37"},
		{"hook", newCaller(gate), "/", http2, Lifecycle, "HTTP/1.1 kube-lifecycle/1.37"},
		{"no gate", newCaller(), "/", http2, Probe, "HTTP/1.1 kube-probe/1.37"},
	} {
		if r, err := get(tt.c, tt.path, tt.protocol, tt.purpose, long); err != nil || r.Body != tt.want {
			t.Errorf("%s: %+v, %v", tt.name, r, err)
		}
	}
	if r, err := get(newCaller(gate), "/endless", http2, Probe, long); err != nil || len(r.Body) != MaxOutput {
		t.Error(len(r.Body), err)
	}
	if _, err := get(newCaller(gate), "/headers", http2, Probe, long); err == nil {
		t.Error("headers without end")
	}
	if _, err := get(newCaller(gate), "/hang", http2, Probe, shortTimeout); err == nil || !strings.Contains(err.Error(), "Client.Timeout") {
		t.Error(err)
	}
	for n := 0; n < 9; { // all connections are closed
		if state := <-open; state == http.StateClosed {
			n++
		}
	}
}

// TestHostileClearHTTP2 checks that a call to a server that does not support HTTP/2 costs at most the timeout. The same applies to a server
// that never stops sending.
func TestHostileClearHTTP2(t *testing.T) {
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for name, serve := range map[string]func(net.Conn){
		"silent":   readUntilClosed,
		"HTTP/1":   func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); readUntilClosed(c) },
		"garbage":  func(c net.Conn) { io.WriteString(c, strings.Repeat("\xff", 64<<10)); readUntilClosed(c) },
		"hangs up": func(net.Conn) {},
		"endless settings": func(c net.Conn) {
			for {
				if _, err := io.WriteString(c, settings); err != nil {
					return
				}
			}
		},
		"endless pings": func(c net.Conn) {
			io.WriteString(c, settings)
			for {
				if _, err := io.WriteString(c, "\x00\x00\x08\x06\x00\x00\x00\x00\x00abcdefgh"); err != nil {
					return
				}
			}
		},
	} {
		a := &v1.HTTPGetAction{Scheme: v1.URISchemeHTTP, Port: serveRaw(t, serve), Protocol: new(v1.HTTPProtocolHTTP2)}
		if r, err := newCaller("H2CContainerProbe").Get(t.Context(), target(), a, Probe, shortTimeout); err == nil || errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// TestGRPCByTLS checks that a gRPC probe uses TLS if the probe's mode requests it and the feature gate is on. The probe accepts any
// certificate.
func TestGRPCByTLS(t *testing.T) {
	clear := &clinic{agents: make(chan string, 10)}
	plain := serveGRPC(t, func(s *grpc.Server) { health.RegisterHealthServer(s, clear) })
	cert := httptest.NewTLSServer(http.NotFoundHandler())
	defer cert.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: cert.TLS.Certificates})))
	health.RegisterHealthServer(s, clear)
	go s.Serve(l)
	defer s.Stop()
	secure := portOf(t, l.Addr().String()).IntVal
	const gate = "GRPCContainerProbeTLS"
	for _, tt := range []struct {
		name    string
		c       *Caller
		port    int32
		mode    *v1.GRPCProbeMode
		works   bool
		timeout time.Duration
	}{
		{"TLS", newCaller(gate), secure, new(v1.GRPCProbeModeTLS), true, long},
		{"plaintext", newCaller(gate), plain, new(v1.GRPCProbeModePlaintext), true, long},
		{"no mode", newCaller(gate), plain, nil, true, long},
		{"no gate", newCaller(), plain, new(v1.GRPCProbeModeTLS), true, long},
		{"TLS to a server without", newCaller(gate), plain, new(v1.GRPCProbeModeTLS), false, shortTimeout},
		{"plaintext to TLS", newCaller(gate), secure, nil, false, shortTimeout},
	} {
		if err := tt.c.Check(t.Context(), target(), &v1.GRPCAction{Port: tt.port, Mode: tt.mode}, tt.timeout); (err == nil) != tt.works {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
