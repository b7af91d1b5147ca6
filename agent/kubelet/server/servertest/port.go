package servertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/islet-edge/islet/agent/kubelet/access"
	"github.com/islet-edge/islet/agent/kubelet/access/accesstest"
	"github.com/islet-edge/islet/agent/kubelet/server"
)

// Open serves a port of the server until the test ends, and returns its address.
func Open(t testing.TB, run func(context.Context, net.Listener) error) string {
	t.Helper()
	ln, err := server.Listen(t.Context(), "127.0.0.1", 0, "a test", "port", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// An API is port 10250 together with a client certificate that permits all requests.
type API struct {
	Addr string
	CA   *accesstest.Authority
	Cert *tls.Certificate
}

// OpenAPI serves port 10250 of a server until the test ends.
func OpenAPI(t testing.TB, s *server.Server) *API {
	t.Helper()
	return OpenAPIBy(t, func(ctx context.Context, ln net.Listener, c *tls.Config, filter func(http.Handler) http.Handler) error {
		return s.RunAPI(ctx, ln, c, filter)
	})
}

// OpenAPIBy is like OpenAPI, but serves the port with the given function.
func OpenAPIBy(t testing.TB, run func(context.Context, net.Listener, *tls.Config, func(http.Handler) http.Handler) error) *API {
	t.Helper()
	a := &API{CA: accesstest.New(t)}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, a.CA.PEM, 0o644); err != nil {
		t.Fatal(err)
	}
	a.Cert = a.CA.Client(t, "kube-apiserver-kubelet-client", "system:masters")
	filter := access.New(access.Config{NodeName: "pi", ClientCAFile: file, AlwaysAllow: true, Log: slog.New(slog.DiscardHandler)})
	config := filter.TLS(&tls.Config{Certificates: []tls.Certificate{*a.CA.Server(t)}, MinVersion: tls.VersionTLS13})
	a.Addr = Open(t, func(ctx context.Context, ln net.Listener) error { return run(ctx, ln, config, filter.Wrap) })
	return a
}

// TLS returns the configuration of a client.
func (a *API) TLS() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CA.PEM)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{*a.Cert}}
}

// Client returns a client of the port. It does not follow redirects.
func (a *API) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: a.TLS(), ForceAttemptHTTP2: true, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Fetch sends a request and returns the code and the body of the response.
func Fetch(t testing.TB, c *http.Client, method, u string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// Scrape returns the metrics on a page of a server.
func Scrape(t testing.TB, s *server.Server, path string) map[string]*dto.MetricFamily {
	t.Helper()
	a := OpenAPI(t, s)
	_, text := Fetch(t, a.Client(), "GET", "https://"+a.Addr+path)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v in\n%s", path, err, text)
	}
	return families
}
