package bundle

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	hub "github.com/google/go-containerregistry/pkg/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/bundle/remote"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/registry"
)

// A hubServer is a registry. A test can replace its answers.
type hubServer struct {
	*httptest.Server
	answer atomic.Pointer[func(http.ResponseWriter, *http.Request) bool] // returns true if it has answered
}

func newHub(t *testing.T) *hubServer {
	t.Helper()
	s, inner := &hubServer{}, hub.New(hub.Logger(log.New(io.Discard, "", 0)))
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := s.answer.Load(); answer == nil || !(*answer)(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *hubServer) name(tag string) string {
	return remote.Scheme + strings.TrimPrefix(s.URL, "http://") + "/kiosk:" + tag
}

// push writes the bundle in a file to the registry.
func (s *hubServer) push(w *world, file, tag string) {
	w.Helper()
	_, a := w.read(file)
	w.must(remote.Push(w.Context(), a, s.name(tag), registry.Config{}))
}

// registries returns a Remote whose requests fail if they make no progress for a duration, or for the default one.
func registries(stall time.Duration) Remote {
	return Remote{OpenRepository: func(ctx context.Context, ref string, _ *api.AuthConfig) (feed.Repository, error) {
		return bundletest.OpenRepository(ctx, ref, registry.Config{Stall: stall})
	}}
}

// TestRegistry checks a node that takes bundles from a registry, for a person and from a followed tag: each bundle is tried once, and a tag
// that names an older bundle again changes nothing.
func TestRegistry(t *testing.T) {
	w, s := newWorld(t), newHub(t)
	one, two, three := w.bundle(1, nil), w.bundle(2, second("more")), w.bundle(3, second("last"))
	n := w.open(nil, registries(0))
	n.c.Images = verifier{w}
	keep := func(number int64) {
		t.Helper()
		n.changing.Lock()
		defer n.changing.Unlock()
		if r := n.now(); r.Trial == nil || r.Trial.Number != number {
			t.Fatalf("bundle %d is not on trial: %+v", number, r)
		}
		w.must(n.change(func(r *Record) error { r.Keep(w.clock); return nil }))
		w.must(n.sweep())
		w.check(n, "a bundle of a registry")
		if size := w.fetched(); size > 0 {
			t.Errorf("%d bytes are left", size)
		}
	}
	s.push(w, one, "stable")
	_, err := apply(n, s.name("stable"), false)
	w.must(err)
	keep(1)
	if b, err := apply(n, s.name("stable"), false); err != nil || !b.InUse {
		t.Errorf("again: %+v, %v", b, err)
	}
	follow := func(last feed.Seen, want error) feed.Seen {
		t.Helper()
		seen, err := n.ApplyFollowed(t.Context(), s.name("stable"), last)
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		return seen
	}
	seen := follow(feed.Seen{}, feed.ErrDone)
	follow(seen, feed.ErrSame)
	s.push(w, two, "stable")
	seen = follow(seen, nil)
	keep(2)
	follow(seen, feed.ErrSame)
	s.push(w, one, "stable") // the tag is moved back
	seen = follow(seen, feed.ErrDone)
	follow(seen, feed.ErrSame)
	if _, err := apply(n, s.name("stable"), false); !errors.Is(err, ErrOlder) {
		t.Errorf("an older bundle for a person: %v", err)
	}
	s.push(w, three, "stable")
	follow(seen, nil)
	keep(3)
	if _, err := apply(n, s.name("none"), false); !errors.As(err, new(download.UnreachableError)) {
		t.Errorf("a tag that does not exist: %v", err)
	}
}

// TestHostileRegistry checks a node whose registry lies, truncates, sends without end, or sends nothing. The node keeps its bundle, nothing
// is written besides the part of a layer that a later fetch can continue, and the next bundle of an honest registry is tried.
func TestHostileRegistry(t *testing.T) {
	v, s := newVictim(t), newHub(t)
	file, old := v.bundle(3, second("more")), v.bundle(1, second("older"))
	s.push(v.world, file, "stable")
	s.push(v.world, old, "old")
	kinds := func(part string, change func(w http.ResponseWriter, r *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, part) {
				return false
			}
			change(w, r)
			return true
		}
	}
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}
	short := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{") }
	silent := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	header := func(key, value string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/manifests/stable") {
				w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
				w.Header().Set("Content-Length", "1000")
				w.Header().Set("Docker-Content-Digest", someDigest("a").String())
				w.Header().Set(key, value)
			}
			return strings.HasSuffix(r.URL.Path, "/manifests/stable")
		}
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request) bool
		stall  time.Duration
	}{
		"short manifests":          {kinds("/manifests/", short), 0},
		"endless manifests":        {kinds("/manifests/", endless), 0},
		"silent manifests":         {kinds("/manifests/", silent), 100 * time.Millisecond},
		"short blobs":              {kinds("/blobs/", short), 0},
		"endless blobs":            {kinds("/blobs/", endless), 0},
		"silent blobs":             {kinds("/blobs/", silent), 100 * time.Millisecond},
		"no blobs":                 {kinds("/blobs/", http.NotFound), 0},
		"a page":                   {kinds("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }), 0},
		"a root that is missing":   {header("", ""), 0},
		"a digest that is none":    {header("Docker-Content-Digest", "sha256:../../etc/passwd"), 0},
		"a negative size":          {header("Content-Length", "-1"), 0},
		"a huge size":              {header("Content-Length", "9000000000000000000"), 0},
		"another kind of document": {header("Content-Type", ocispec.MediaTypeImageManifest), 0},
		"an older bundle under the tag": {func(_ http.ResponseWriter, r *http.Request) bool {
			r.URL.Path = strings.Replace(r.URL.Path, "/manifests/stable", "/manifests/old", 1)
			return false
		}, 0},
		"blobs of a zero": {kinds("/blobs/", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(make([]byte, 2048))
		}), 0},
		"redirects without end": {kinds("/blobs/", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}), 0},
	} {
		s.answer.Store(&c.answer)
		v.remote = registries(c.stall)
		for _, followed := range []bool{false, true} {
			n, seen := v.boot(), feed.Seen{}
			_, err := v.apply(n, name, request{from: s.name("stable"), followed: followed, own: n.now(), seen: &seen})
			if err == nil {
				t.Fatalf("%s: the bundle is on trial", name)
			}
			if size := v.fetched(); size > 64<<10 { // the layers are smaller
				t.Errorf("%s: %d bytes were fetched", name, size)
			}
		}
	}
	s.answer.Store(nil)
	v.remote = registries(0)
	if _, err := v.apply(v.boot(), "an honest registry", request{from: s.name("stable")}); err != nil {
		t.Error(err)
	}
	if size := v.fetched(); size > 0 {
		t.Errorf("%d bytes are left", size)
	}
}

// fetched returns the size of the layers that are being fetched.
func (w *world) fetched() (size int64) {
	list, _ := filepath.Glob(filepath.Join(w.dir, downloadDir, "*"))
	for _, name := range list {
		info, err := os.Stat(name)
		w.must(err)
		size += info.Size()
	}
	return size
}
