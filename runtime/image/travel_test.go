package image

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	fakeregistry "github.com/google/go-containerregistry/pkg/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/edge/inventory"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/build"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/bundle/remote"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/registry"
	"github.com/islet-edge/islet/internal/signed"
	"github.com/islet-edge/islet/runtime/cri"
)

// A meter is a listener that counts the bytes of all connections, in both directions.
type meter struct {
	net.Listener
	bytes *atomic.Int64
}

func (m meter) Accept() (net.Conn, error) {
	c, err := m.Listener.Accept()
	return meteredConn{c, m.bytes}, err
}

type meteredConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}

func (c meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}

// meteredServer starts a server on this machine.
func meteredServer(t *testing.T, h http.Handler) (s *httptest.Server, bytes *atomic.Int64) {
	bytes = new(atomic.Int64)
	s = httptest.NewUnstartedServer(h)
	s.Listener = meter{s.Listener, bytes}
	s.Start()
	t.Cleanup(s.Close)
	return s, bytes
}

// layeredBundle builds a signed bundle with one image of twenty layers. The uppermost one has another size, and differs with the number.
func layeredBundle(t *testing.T, key ed25519.PrivateKey, number, layer, changed int) *bundle.Artefact {
	t.Helper()
	return middleBundle(t, key, number, number, 0, layer, changed)
}

// middleBundle builds a signed bundle like layeredBundle. The parameter top changes the uppermost layer, and the parameter middle the tenth
// one.
func middleBundle(t *testing.T, key ed25519.PrivateKey, number, top, middle, layer, changed int) *bundle.Artefact {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "kiosk")
	img := bundletest.Image{Name: "localhost/web:1", Platforms: []string{"linux/" + runtime.GOARCH}}
	for i := range 20 {
		text := strings.Repeat(fmt.Sprintf("layer %8d\n", i), layer/15)
		switch i {
		case 9:
			text = strings.Repeat(fmt.Sprintf("middle %7d\n", middle), layer/15)
		case 19:
			text = strings.Repeat(fmt.Sprintf("number %7d\n", top), changed/15)
		}
		img.Layers = append(img.Layers, text)
	}
	bundletest.Write(t, filepath.Join(dir, "images/web"), bundletest.OCI(t, img)...)
	bundletest.Write(t, dir, bundletest.File{Name: "bundle.yaml", Data: fmt.Appendf(nil,
		"apiVersion: islet.dev/v1alpha1\nkind: Bundle\nname: kiosk\nnumber: %d\n", number)},
		bundletest.File{Name: "manifests/web.yaml", Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n" +
			"spec: {containers: [{name: web, image: \"localhost/web:1\"}]}\n")})
	b := &build.Build{Dir: dir, Inventory: inventory.Read}
	t.Cleanup(func() { b.Close() })
	a, err := b.Run(t.Context())
	if err == nil {
		s := bundle.NewSignature(a.Contents, a.ID, time.Now())
		s.Text.Sign(key)
		err = a.SetSignature(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestTravel counts the bytes that a node fetches for the first bundle, and for the next one, in whose only image one layer differs: of an
// image of 200 MB whose uppermost layer of 2 MB differs, at most 3 MB. The short form has a tenth of these sizes. In a third bundle, a
// layer in the middle differs. The layers above it travel too, because the node keeps layers only unpacked, each on top of the layers below
// it.
func TestTravel(t *testing.T) {
	layer, changed, most := 1_000_000, 200_000, int64(300_000)
	if os.Getenv("ISLET_TEST_LONG") != "" {
		layer, changed, most = 10*layer, 10*changed, 10*most
	}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	policy := bundle.Policy{Keys: []signed.Key{signed.PublicKey(key)}, Threshold: 1}
	one, two := layeredBundle(t, key, 1, layer, changed), layeredBundle(t, key, 2, layer, changed)
	three := middleBundle(t, key, 3, 2, 1, layer, changed)
	above := int64(10*layer + changed) // the layers from the middle on
	dir := t.TempDir()
	files, fileBytes := meteredServer(t, http.FileServer(http.Dir(dir)))
	hub, hubBytes := meteredServer(t, fakeregistry.New(fakeregistry.Logger(log.New(io.Discard, "", 0))))
	reference := remote.Scheme + strings.TrimPrefix(hub.URL, "http://") + "/kiosk:stable"
	publish := func(a *bundle.Artefact) {
		f, err := os.Create(filepath.Join(dir, "kiosk.tar"))
		if err == nil {
			err = errors.Join(a.WriteTar(f), f.Close(), a.WriteDir(filepath.Join(dir, "kiosk")), remote.Push(t.Context(), a, reference, registry.Config{}))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		from  string
		bytes *atomic.Int64
	}{
		"a tar":       {files.URL + "/kiosk.tar", fileBytes},
		"a directory": {files.URL + "/kiosk/", fileBytes},
		"a registry":  {reference, hubBytes},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, nil)
			client := download.NewClient(time.Now)
			defer client.CloseIdleConnections()
			o := feed.NewOpener(feed.Config{
				Dir: filepath.Join(t.TempDir(), "download"), NewClient: func() *http.Client { return client }, ReadKnown: func(d ocispec.Descriptor) []byte { return s.ReadStored(t.Context(), d) },
				CheckSpace: func(int64) error { return nil }, Policy: &policy,
				OpenRepository: func(ctx context.Context, ref string, auth *api.AuthConfig) (feed.Repository, error) {
					return s.OpenRemote(ctx, ref, auth, 0)
				},
			})
			fetch := func(a *bundle.Artefact) int64 {
				publish(a)
				before := c.bytes.Load()
				l, _, err := o.Open(t.Context(), feed.Request{From: c.from, Tell: func(string, int64, int64) {}})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				b, err := bundle.Open(l, &policy)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range b.Files {
					if _, err := b.ReadFile(f); err != nil {
						t.Fatal(err)
					}
				}
				img, err := s.ChooseBundleImage(b.Contents.Images[0])
				if err == nil {
					_, err = s.MissingBytes(t.Context(), l, img)
				}
				if err == nil {
					err = s.ImportBundleImage(t.Context(), l, img, func(cri.ImportProgress) {})
				}
				if err = errors.Join(err, l.Imported()); err != nil || b.ID != a.ID {
					t.Fatal(err)
				}
				return c.bytes.Load() - before
			}
			first, next, middle := fetch(one), fetch(two), fetch(three)
			t.Logf("%d bytes, then %d and %d of %d", first, next, middle, two.Contents.Size)
			if first > one.Contents.Size+most/2 || next > most {
				t.Errorf("%d bytes, then %d of %d, and at most %d are allowed", first, next, two.Contents.Size, most)
			}
			if middle > above+most/2 {
				t.Errorf("a layer in the middle: %d bytes, and at most %d are allowed", middle, above+most/2)
			}
		})
	}
}

// TestRemoteResumes breaks the fetch of a layer from a registry, and checks that the next one requests only the rest.
func TestRemoteResumes(t *testing.T) {
	s, hub := newService(t, nil), newServer(t, false)
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	a := layeredBundle(t, key, 1, 1000, 300_000)
	ref := remote.Scheme + strings.TrimPrefix(hub.URL, "http://") + "/kiosk:1"
	if err := remote.Push(t.Context(), a, ref, registry.Config{}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "download")
	var layer ocispec.Descriptor
	fetch := func() error {
		o := feed.NewOpener(feed.Config{
			Dir: dir, ReadKnown: func(ocispec.Descriptor) []byte { return nil }, CheckSpace: func(int64) error { return nil },
			OpenRepository: func(ctx context.Context, ref string, auth *api.AuthConfig) (feed.Repository, error) {
				return s.OpenRemote(ctx, ref, auth, 0)
			},
		})
		l, _, err := o.Open(t.Context(), feed.Request{From: ref, Tell: func(string, int64, int64) {}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		b, err := bundle.Open(l, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.VisitImages(t.Context(), func(p *bundle.PlatformImage) error { layer = p.Layers[19]; return nil }); err != nil {
			t.Fatal(err)
		}
		return bundle.CopyBlob(io.Discard, l, layer, bundle.MaxBlob)
	}
	if err := fetch(); err != nil { // it only finds the layer
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	broken := false
	hub.set(func(h *server) {
		h.sizes[layer.Digest.String()] = layer.Size
		h.cut = func(blob string) int {
			if blob != layer.Digest.String() {
				return 1 << 30
			}
			broken = true
			return 100_000
		}
		h.before = func(w http.ResponseWriter, _ *http.Request) bool { // no attempt to continue at once succeeds
			h.mu.Lock()
			defer h.mu.Unlock()
			if broken {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return broken
		}
	})
	if err := fetch(); !errors.As(err, new(download.UnreachableError)) {
		t.Fatal(err)
	}
	hub.set(func(h *server) { h.cut, h.before = nil, nil })
	if err := fetch(); err != nil {
		t.Fatal(err)
	}
	if got := hub.requests("GET /v2/kiosk/blobs/" + layer.Digest.String()); len(got) != 1 || !strings.Contains(got[0], "bytes=100000-") {
		t.Errorf("%q", got)
	}
}
