package feed

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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	hub "github.com/google/go-containerregistry/pkg/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/edge/inventory"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/build"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/bundle/remote"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/poll"
	"github.com/islet-edge/islet/internal/registry"
	"github.com/islet-edge/islet/internal/signed"
)

var testKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

// layerText is the contents of a layer that is larger than the first part of a tar.
var layerText = strings.Repeat("0123456789abcdef", 20<<10)

// artefact builds a signed bundle whose images have large layers.
func artefact(t *testing.T) *format.Artefact {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "kiosk")
	both := []string{"linux/amd64", "linux/arm64"}
	bundletest.Source(t, dir)
	if err := os.RemoveAll(filepath.Join(dir, "images/web")); err != nil {
		t.Fatal(err)
	}
	bundletest.Write(t, filepath.Join(dir, "images/web"),
		bundletest.OCI(t, bundletest.Image{Name: "localhost/web:1", Platforms: both, Layers: []string{layerText, "small", layerText + "x"}})...)
	b := &build.Build{Dir: dir, Inventory: inventory.Read}
	t.Cleanup(func() { b.Close() })
	a, err := b.Run(t.Context())
	if err == nil {
		s := format.NewSignature(a.Contents, a.ID, time.Now())
		s.Text.Sign(testKey)
		err = a.SetSignature(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A site serves a bundle as the tar /kiosk.tar, as the tar /sorted.tar, whose entries are sorted as those of other tools, and as the
// directory /kiosk/. A test can replace its answers.
type site struct {
	*httptest.Server
	dir      string
	answer   atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool] // returns true if it has answered
	mu       sync.Mutex
	requests []*http.Request
	in, out  atomic.Int64 // bytes of requests and of responses
	conns    atomic.Int64
}

// A meteredListener counts the bytes of its connections.
type meteredListener struct {
	net.Listener
	site *site
}

func (l meteredListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.site.conns.Add(1)
	return meteredConn{c, l.site}, err
}

type meteredConn struct {
	net.Conn
	site *site
}

func (c meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.site.in.Add(int64(n))
	return n, err
}

func (c meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.site.out.Add(int64(n))
	return n, err
}

func newSite(t *testing.T, a *format.Artefact) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	f, err := os.Create(filepath.Join(s.dir, "kiosk.tar"))
	if err == nil {
		err = errors.Join(a.WriteTar(f), f.Close(), a.WriteDir(filepath.Join(s.dir, "kiosk")))
	}
	if err != nil {
		t.Fatal(err)
	}
	var files []bundletest.File
	for _, pattern := range []string{"blobs/sha256/*", "index.json", "oci-layout"} { // as filepath.Walk finds them
		names, err := filepath.Glob(filepath.Join(s.dir, "kiosk", pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			rel, _ := filepath.Rel(filepath.Join(s.dir, "kiosk"), name)
			files = append(files, bundletest.File{Name: rel, Data: data})
		}
	}
	bundletest.Write(t, s.dir, bundletest.File{Name: "sorted.tar", Data: bundletest.Tar(t, files...)})
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Listener = meteredListener{s.Listener, s}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	if answer := s.answer.Load(); answer != nil && (*answer)(w, r) {
		return
	}
	info, err := os.Stat(filepath.Join(s.dir, filepath.FromSlash(r.URL.Path)))
	if err != nil || info.IsDir() {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%d-%d"`, info.Size(), info.ModTime().UnixNano()))
	f, err := os.Open(filepath.Join(s.dir, filepath.FromSlash(r.URL.Path)))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	http.ServeContent(w, r, "", time.Time{}, f)
}

// set replaces the answers, and forgets the requests and bytes so far.
func (s *site) set(answer func(w http.ResponseWriter, r *http.Request) bool) {
	s.answer.Store(&answer)
	s.mu.Lock()
	s.requests = nil
	s.mu.Unlock()
	s.in.Store(0)
	s.out.Store(0)
}

func (s *site) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// noRanges is an answer of a server that supports no ranges.
func noRanges(_ http.ResponseWriter, r *http.Request) bool {
	r.Header.Del("Range")
	return false
}

// opener returns an Opener with the folder dir.
func opener(t *testing.T, dir string, full func(int64) error) *Opener {
	client := download.NewClient(time.Now)
	t.Cleanup(client.CloseIdleConnections)
	if full == nil {
		full = func(int64) error { return nil }
	}
	return NewOpener(Config{
		Dir: dir, NewClient: func() *http.Client { return client }, ReadKnown: func(ocispec.Descriptor) []byte { return nil }, CheckSpace: full,
		Policy: &format.Policy{Keys: []signed.Key{signed.PublicKey(testKey)}, Threshold: 1},
		OpenRepository: func(ctx context.Context, ref string, auth *api.AuthConfig) (Repository, error) {
			if auth.GetPassword() == "wrong" {
				return nil, errors.New("denied")
			}
			return bundletest.OpenRepository(ctx, ref, registry.Config{})
		},
		Credentials: func(context.Context, string) ([]*api.AuthConfig, error) {
			return []*api.AuthConfig{{Password: "wrong"}, {Password: "right"}}, nil
		},
	})
}

// newHub returns the name of a bundle in a registry.
func newHub(t *testing.T, a *format.Artefact) string {
	s := httptest.NewServer(hub.New(hub.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	name := remote.Scheme + strings.TrimPrefix(s.URL, "http://") + "/kiosk:42"
	if err := remote.Push(t.Context(), a, name, registry.Config{}); err != nil {
		t.Fatal(err)
	}
	return name
}

// verify opens a bundle and reads all its bytes.
func verify(t *testing.T, o *Opener, from string, last poll.Validators) (*format.Bundle, poll.Validators, error) {
	t.Helper()
	l, v, err := o.Open(t.Context(), Request{
		From: from, Last: last, Accept: func(*format.Bundle) error { return nil }, Tell: func(string, int64, int64) {},
	})
	if err != nil {
		return nil, v, err
	}
	defer l.Close()
	b, err := format.Open(l, o.c.Policy)
	if err == nil {
		err = b.Verify(t.Context(), func(int64, int64) {})
	}
	return b, v, err
}

// used returns the bytes in a folder.
func used(dir string) (size int64) {
	_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			size += info.Size()
		}
		return nil
	})
	return size
}
