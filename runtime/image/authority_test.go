package image

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const secretWord = "open-sesame"

// A thief is a server that records the secrets in the requests that it receives.
type thief struct {
	*httptest.Server
	mu       sync.Mutex
	secrets  []string
	requests int
}

func newThief(t *testing.T, answer http.HandlerFunc) *thief {
	t.Helper()
	x := &thief{}
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		x.mu.Lock()
		x.requests++
		for _, key := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
			if v := r.Header.Get(key); v != "" && !strings.Contains(v, "anonymous") {
				x.secrets = append(x.secrets, fmt.Sprintf("%s %s: %s %s", r.Method, r.URL, key, v))
			}
		}
		if bytes.Contains(body, []byte(secretWord)) {
			x.secrets = append(x.secrets, fmt.Sprintf("%s %s: body %s", r.Method, r.URL, body))
		}
		x.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(x.Close)
	return x
}

func (x *thief) got() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.secrets)
}

func (x *thief) check(t *testing.T) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.requests == 0 {
		t.Error("the other server received no request, so this tests nothing")
	}
	if len(x.secrets) > 0 {
		t.Errorf("secrets were sent to another server: %q", x.secrets)
	}
}

// TestSecretsStay checks that the credentials of a registry are sent only to this registry. If the registry redirects to another server,
// that server gets no credentials, even if it demands them. Anonymous tokens for the other server are used.
func TestSecretsStay(t *testing.T) {
	img := small(t)
	layer := layerDigests(t, img)[0]
	for name, tt := range map[string]struct {
		auth      *api.AuthConfig
		header    string // header that hosts.toml sets for the registry
		challenge string // authentication scheme that the other server demands
	}{
		"a ready token":                     {auth: &api.AuthConfig{RegistryToken: secretWord}},
		"a ready token, asked for":          {auth: &api.AuthConfig{RegistryToken: secretWord}, challenge: "Basic"},
		"a password, asked for":             {auth: &api.AuthConfig{Username: "u", Password: secretWord}, challenge: "Basic"},
		"a password for a token":            {auth: &api.AuthConfig{Username: "u", Password: secretWord}, challenge: "Bearer"},
		"an identity token":                 {auth: &api.AuthConfig{IdentityToken: secretWord}, challenge: "Bearer"},
		"headers of the administrator":      {header: "  [host.%q.header]\n    Authorization = \"Basic " + secretWord + "\"\n    Cookie = \"" + secretWord + "\"\n"},
		"headers, and a token is asked for": {header: "  [host.%q.header]\n    Authorization = \"Basic " + secretWord + "\"\n", challenge: "Bearer"},
	} {
		t.Run(name, func(t *testing.T) {
			hub := newServer(t, false)
			hub.push(t, "demo:1", img)
			var other *thief
			other = newThief(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasPrefix(r.URL.Path, "/token"):
					fmt.Fprint(w, `{"token":"anonymous"}`)
				case tt.challenge == "Bearer" && !strings.Contains(r.Header.Get("Authorization"), "anonymous"):
					w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="x"`, other.URL))
					w.WriteHeader(http.StatusUnauthorized)
				case tt.challenge == "Basic":
					w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
					w.WriteHeader(http.StatusUnauthorized)
				default:
					http.Redirect(w, r, hub.URL+r.URL.Path+"?back", http.StatusTemporaryRedirect)
				}
			})
			hub.set(func(h *server) {
				h.before = func(w http.ResponseWriter, r *http.Request) bool {
					if strings.HasSuffix(r.URL.Path, layer) && r.URL.RawQuery != "back" {
						http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
						return true
					}
					return false
				}
			})
			dir := plainDir(t, hub.URL)
			if tt.header != "" {
				addTo(t, filepath.Join(dir, "registry.example", "hosts.toml"), fmt.Sprintf(tt.header, hub.URL))
			}
			s := newService(t, func(c *Config) { c.CertsDir = dir })
			_, err := pull(t.Context(), s, "registry.example/demo:1", tt.auth)
			if (err != nil) != (tt.challenge == "Basic") {
				t.Errorf("pull: %v", err)
			}
			other.check(t)
		})
	}
}

// TestTokenServer checks that credentials are sent only to the token server that the registry names. If the registry uses TLS, they are not
// sent to a token server without TLS. If the token server redirects, the target gets no credentials.
func TestTokenServer(t *testing.T) {
	auth := &api.AuthConfig{Username: "u", Password: secretWord}
	t.Run("without TLS", func(t *testing.T) {
		other := newThief(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"token":"x"}`) })
		hub := newServer(t, true)
		wantToken(hub, other.URL+"/token")
		dir := certsDir(t, hub.URL)
		writeCA(t, dir, hub)
		s := newService(t, func(c *Config) { c.CertsDir = dir })
		if _, err := pull(t.Context(), s, "registry.example/demo:1", auth); err == nil || !strings.Contains(err.Error(), "without TLS") {
			t.Errorf("pull: %v", err)
		}
		if got := other.got(); len(got) > 0 {
			t.Errorf("sent %q", got)
		}
	})
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		t.Run(method+" that is redirected", func(t *testing.T) {
			other := newThief(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"token":"anonymous"}`) })
			var sent atomic.Int32
			tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != method {
					w.WriteHeader(http.StatusNotFound) // the client then tries GET
					return
				}
				sent.Add(1)
				http.Redirect(w, r, other.URL+"/token", http.StatusTemporaryRedirect)
			}))
			t.Cleanup(tokens.Close)
			hub := newServer(t, false)
			wantToken(hub, tokens.URL+"/token")
			s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
			if _, err := pull(t.Context(), s, "registry.example/demo:1", auth); err == nil {
				t.Error("the pull succeeded")
			}
			if sent.Load() == 0 {
				t.Error("no credentials were sent to the token server")
			}
			if got := other.got(); len(got) > 0 {
				t.Errorf("sent %q", got)
			}
		})
	}
}

// wantToken makes a registry demand a token for every request. The value realm is the URL of the token server.
func wantToken(hub *server, realm string) {
	hub.set(func(h *server) {
		h.before = func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="x"`, realm))
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
	})
}

// TestForeignURLs checks that the field urls of a layer's descriptor is ignored, whatever the media type of the layer is.
func TestForeignURLs(t *testing.T) {
	requests := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.String()
		w.WriteHeader(http.StatusNotFound)
	}))
	defer other.Close()
	img := small(t)
	for _, mediaType := range []string{"application/vnd.docker.image.rootfs.diff.tar.gzip", "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"} {
		hub := newServer(t, false)
		hub.push(t, "demo:1", img)
		manifest, err := img.RawManifest()
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(manifest), `"mediaType":"application/vnd.docker.image.rootfs.diff.tar.gzip"`,
			fmt.Sprintf(`"mediaType":%q,"urls":[%q]`, mediaType, other.URL+"/layer"))
		if !strings.Contains(text, other.URL) {
			t.Fatalf("no urls in %s", text)
		}
		hub.send(t, http.MethodPut, "/v2/demo/manifests/1", "application/vnd.docker.distribution.manifest.v2+json", []byte(text))
		s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
		if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err != nil {
			t.Errorf("%s: %v", mediaType, err)
		}
	}
	if len(requests) > 0 {
		t.Errorf("the other server received a request for %s", <-requests)
	}
}

func layerDigests(t *testing.T, img v1.Image) (out []string) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		sum, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, sum.String())
	}
	return out
}

func addTo(t *testing.T, path, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, append(b, text...))
}
