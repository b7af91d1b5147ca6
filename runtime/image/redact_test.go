package image

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/registry"
)

// TestQueriesAreSecret checks a registry that redirects a pull to a URL with a secret in its query. The redirected request fails. The error
// contains the host of the URL and no part of the query. errors.Is still finds the cause.
func TestQueriesAreSecret(t *testing.T) {
	hub := newServer(t, false)
	hub.push(t, "demo:1", small(t))
	const secret = "X-Signature=s3cr3t"
	for name, answer := range map[string]http.HandlerFunc{
		"refuses":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"out of order": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"hangs up":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"is short":     func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			store := httptest.NewServer(answer)
			defer store.Close()
			hub.set(func(h *server) {
				h.before = func(w http.ResponseWriter, r *http.Request) bool {
					blob := strings.Contains(r.URL.Path, "/blobs/")
					if blob {
						http.Redirect(w, r, store.URL+"/layer?"+secret+"&other=1", http.StatusTemporaryRedirect)
					}
					return blob
				}
			})
			s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
			_, err := pull(t.Context(), s, "registry.example/demo:1", nil)
			if err == nil || strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "other=1") {
				t.Errorf("the error is %v", err)
			}
		})
	}
	err := registry.WithoutQueries(errors.Join(io.EOF,
		errors.New(`Get "https://a.b/c?d=e%20f&g": x, http://h/i?j=k: refused; why? http://h/i?se=2026-01-01T00:00:00Z&sig=s3cr3t: 403`)))
	if want := "EOF\nGet \"https://a.b/c?...\": x, http://h/i?...: refused; why? http://h/i?...: 403"; err.Error() != want ||
		!errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	if registry.WithoutQueries(nil) != nil {
		t.Error("a nil error becomes an error")
	}
}
