package image

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestAnswerBombs checks that hostile responses of registries and token servers use little memory. An endless response is not read to its
// end.
func TestAnswerBombs(t *testing.T) {
	img := small(t)
	layer := layerDigests(t, img)[0]
	// A zstd frame whose window has 512 MiB, the most, and its two blocks. An encoder with such a window takes seconds.
	zstdBomb := []byte("\x28\xb5\x2f\xfd\x00\x98" + "\x08\x00\x00{" + "\x09\x00\x00}")
	for name, tt := range map[string]struct {
		want    string
		matches func(r *http.Request) bool
		do      func(w http.ResponseWriter, out io.Writer)
	}{
		"a token without end": {"more than 1048576 bytes", func(r *http.Request) bool { return r.URL.Path == "/token" }, func(_ http.ResponseWriter, out io.Writer) {
			fmt.Fprint(out, `{"token":"`)
			forever(out)
		}},
		"a manifest without end": {"more than", func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/")
		}, func(_ http.ResponseWriter, out io.Writer) {
			forever(out)
		}},
		"a layer without end": {"past expected size", func(r *http.Request) bool { return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, layer) }, func(_ http.ResponseWriter, out io.Writer) {
			forever(out)
		}},
		"zstd": {"content encoding", func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/")
		}, func(w http.ResponseWriter, out io.Writer) {
			w.Header().Set("Content-Encoding", "zstd")
			_, _ = out.Write(zstdBomb)
		}},
		"many encodings": {"content encoding", func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/")
		}, func(w http.ResponseWriter, out io.Writer) {
			w.Header().Set("Content-Encoding", strings.Repeat("gzip,", 20000)+"gzip")
			_, _ = out.Write([]byte("x"))
		}},
		"headers": {"exceeded", func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") }, func(w http.ResponseWriter, _ io.Writer) {
			w.Header().Set("WWW-Authenticate", "Bearer "+strings.Repeat(`a="b",`, 100000))
			w.WriteHeader(http.StatusUnauthorized)
		}},
		"an error": {"", func(r *http.Request) bool {
			return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/")
		}, func(w http.ResponseWriter, out io.Writer) {
			w.WriteHeader(http.StatusForbidden)
			forever(out)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			hub := newServer(t, false)
			hub.push(t, "demo:1", img)
			var sent atomic.Int64
			hub.set(func(h *server) {
				h.before = func(w http.ResponseWriter, r *http.Request) bool {
					switch {
					case tt.matches(r):
						tt.do(w, counted{w, &sent})
					case strings.Contains(name, "token"):
						w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="x"`, hub.URL))
						w.WriteHeader(http.StatusUnauthorized)
					default:
						return false
					}
					return true
				}
			})
			s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
			wantHeap(t, mostHeap, func() {
				if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("pull: %.300v, want %q", err, tt.want)
				}
			})
			if sent.Load() > 64<<20 {
				t.Errorf("%d MiB were read", sent.Load()>>20)
			}
		})
	}
}

// forever writes until the peer closes the connection.
func forever(out io.Writer) {
	block := bytes.Repeat([]byte("x"), 64<<10)
	for range 1 << 20 {
		if _, err := out.Write(block); err != nil {
			return
		}
	}
}

type counted struct {
	io.Writer
	n *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// TestLongerThanDescriptor checks that a document is rejected if its length differs from the size in its descriptor.
func TestLongerThanDescriptor(t *testing.T) {
	for _, more := range []int64{1, -1} {
		hub := newBombRegistry(t)
		config := hub.add(t, ocispec.MediaTypeImageConfig, []byte(`{"architecture":"x"}`))
		config.Size -= more
		hub.add(t, ocispec.MediaTypeImageManifest, []byte(manifestOpen+`"config":`+toJSON(t, config)+`}`))
		s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
		if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err == nil {
			t.Errorf("an image was pulled whose document is %d bytes longer", more)
		}
	}
}
