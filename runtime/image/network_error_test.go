package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// TestBrokenLayerIsNoNetworkError checks images that arrive completely but cannot be unpacked. Their errors must not count as an
// unreachable registry, because a pod with the policy Always would then use an older image.
func TestBrokenLayerIsNoNetworkError(t *testing.T) {
	plain := tarOf(t, file{name: "data", body: noise(5, 64<<10)})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	hub := newServer(t, false)
	s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
	for tag, layer := range map[string]v1.Layer{
		"link":   layerOf(t, file{name: "new", link: "absent", typ: tar.TypeLink}),
		"folder": layerOf(t, file{name: "file", body: "x"}, file{name: "file/below", body: "x"}),
		"gzip":   static.NewLayer(packed.Bytes()[:packed.Len()/2], types.OCILayer),
		"tar":    static.NewLayer(plain[:len(plain)/2], types.OCIUncompressedLayer),
		"empty":  static.NewLayer([]byte{0x1f, 0x8b, 8}, types.OCILayer),
	} {
		hub.push(t, "demo:"+tag, imageOf(t, "", layerOf(t, file{name: "base", body: "x"}), layer))
		_, err := pull(t.Context(), s, "registry.example/demo:"+tag, nil)
		if err == nil || errors.Is(err, crierrors.ErrRegistryUnavailable) {
			t.Errorf("%s: %v", tag, err)
		} else {
			t.Log(err)
		}
	}
}

// TestShortAnswerIsNetworkError checks a registry that ends its response too early, without an error of the connection.
func TestShortAnswerIsNetworkError(t *testing.T) {
	hub := newServer(t, false)
	img := imageOf(t, "", layerOf(t, file{name: "data", body: noise(5, 64<<10)}))
	hub.push(t, "demo:1", img)
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	sum, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range []string{imageID(t, img), sum.String()} {
		s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
		hub.set(func(h *server) {
			h.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || r.URL.Path != "/v2/demo/blobs/"+blob {
					return false
				}
				w.(http.Flusher).Flush() // without a Content-Length
				io.WriteString(w, "{")
				return true
			}
		})
		if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); !errors.Is(err, crierrors.ErrRegistryUnavailable) {
			t.Errorf("%s: %v", blob, err)
		}
	}
}
