package image

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestRemoteAgent checks the User-Agent of the requests for a bundle: the one of the registry's settings, if there is one.
func TestRemoteAgent(t *testing.T) {
	hub := newServer(t, false)
	hub.push(t, "demo:1", small(t))
	for want, header := range map[string]string{
		remoteAgent: "",
		"site/1":    "  [host.\"%s\".header]\n    User-Agent = \"site/1\"\n",
	} {
		for _, idle := range []time.Duration{0, time.Hour} {
			certs := t.TempDir()
			var agent atomic.Value
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				agent.Store(strings.Join(r.Header["User-Agent"], ","))
				hub.Config.Handler.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			settings := fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", server.URL)
			if header != "" {
				settings += fmt.Sprintf(header, server.URL)
			}
			writeFile(t, filepath.Join(certs, "registry.example", "hosts.toml"), []byte(settings))
			s := newService(t, func(c *Config) { c.CertsDir = certs })
			r, err := s.OpenRemote(t.Context(), "registry.example/demo:1", nil, idle)
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			s.kept.keepOnly(nil)
			if got := agent.Load(); got != want {
				t.Errorf("the User-Agent is %v, want %s", got, want)
			}
		}
	}
}
