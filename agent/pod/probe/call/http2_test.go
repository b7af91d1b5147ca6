package call

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestHTTP2 checks that a call uses HTTP/2 if the server supports nothing else. The limits stay the same. If the server supports HTTP/1.1
// too, the call uses HTTP/1.1.
func TestHTTP2(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	for _, protocols := range [][]string{{"h2"}, {"h2", "http/1.1"}} {
		open := make(chan http.ConnState, 100)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/hang":
				select {
				case <-hang:
				case <-r.Context().Done():
				}
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
			default:
				fmt.Fprint(w, r.Proto, " ", r.UserAgent())
			}
		}))
		s.EnableHTTP2, s.TLS = true, &tls.Config{NextProtos: protocols}
		s.TLS.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			own := s.TLS.Clone()
			if !slices.Contains(hello.SupportedProtos, "h2") && len(protocols) == 1 {
				own.NextProtos = []string{"none"} // otherwise Go's server would accept HTTP/1.1
			}
			own.GetConfigForClient = nil
			return own, nil
		}
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) { open <- state }
		s.StartTLS()
		c := New(Config{Version: "1.36"})
		get := func(path string, timeout time.Duration) (Response, error) {
			a := &v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS, Host: "127.0.0.1", Path: path, Port: intstr.FromString(s.URL[strings.LastIndex(s.URL, ":")+1:])}
			return c.Get(t.Context(), Target{Container: &v1.Container{}}, a, Probe, timeout)
		}
		want := "HTTP/2.0 kube-probe/1.36"
		if len(protocols) > 1 {
			want = "HTTP/1.1 kube-probe/1.36"
		}
		if r, err := get("/", 0); err != nil || r.Code != 200 || r.Body != want {
			t.Error(r, err)
		}
		if r, err := get("/endless", 0); err != nil || len(r.Body) != MaxOutput {
			t.Error(len(r.Body), err)
		}
		if _, err := get("/headers", 0); err == nil {
			t.Error("headers without end")
		}
		if r, err := get("/hang", 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "Client.Timeout") {
			t.Error(protocols, r, err)
		}
		for n := 0; n < 4; { // all connections are closed
			if state := <-open; state == http.StateClosed {
				n++
			}
		}
		s.Close()
	}
}
