package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	hub "github.com/google/go-containerregistry/pkg/registry"

	"github.com/islet-edge/islet/edge/inventory"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/build"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/registry"
)

const password = "open-sesame"

// A server is a registry that requires a password and counts requests. A test can replace its answers.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	puts   []string
	before func(w http.ResponseWriter, r *http.Request) bool // returns true if it has answered
}

func newServer(t *testing.T) *server {
	t.Helper()
	inner := hub.New(hub.Logger(log.New(io.Discard, "", 0)))
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); user != "anna" || pass != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s.mu.Lock()
		before := s.before
		if r.Method == http.MethodPut {
			s.puts = append(s.puts, r.URL.Path)
		}
		s.mu.Unlock()
		if before == nil || !before(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// name returns the name of a bundle in the registry.
func (s *server) name(object string) string {
	return Scheme + strings.TrimPrefix(s.URL, "http://") + "/team/kiosk" + object
}

func (s *server) set(before func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.puts = before, nil
}

func (s *server) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.puts)
}

func config(stall time.Duration) registry.Config {
	return registry.Config{Stall: stall, Secrets: func(string) (string, string, error) { return "anna", password, nil }}
}

// artefact builds a bundle.
func artefact(t *testing.T) *bundle.Artefact {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "kiosk")
	bundletest.Source(t, dir)
	b := &build.Build{Dir: dir, Inventory: inventory.Read}
	t.Cleanup(func() { b.Close() })
	a, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// check opens a bundle in a registry and verifies all its bytes.
func check(ctx context.Context, name string, stall time.Duration) (b *bundle.Bundle, tar []byte, err error) {
	l, err := Open(ctx, name, config(stall))
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if b, err = bundle.Open(l, nil); err != nil {
		return nil, nil, err
	}
	if err := b.Verify(ctx, func(int64, int64) {}); err != nil {
		return b, nil, err
	}
	a, err := b.Artefact(ctx)
	if err != nil {
		return b, nil, err
	}
	var out bytes.Buffer
	err = a.WriteTar(&out)
	return b, out.Bytes(), err
}

// TestRegistry checks that a bundle that was pushed is read with the same bytes, that a second push sends no blob, and that a signature is
// a new root under the same tag.
func TestRegistry(t *testing.T) {
	s, a := newServer(t), artefact(t)
	var want bytes.Buffer
	if err := a.WriteTar(&want); err != nil {
		t.Fatal(err)
	}
	last, total := int64(0), int64(-1)
	a.Progress = func(done, all int64) error {
		if done < last || done > all {
			t.Errorf("%d of %d after %d", done, all, last)
		}
		last, total = done, all
		return nil
	}
	if err := Push(t.Context(), a, s.name(":42"), config(0)); err != nil {
		t.Fatal(err)
	}
	if last != total {
		t.Errorf("%d of %d at the end", last, total)
	}
	b, tar, err := check(t.Context(), s.name(":42"), 0)
	if err != nil || !bytes.Equal(tar, want.Bytes()) {
		t.Fatalf("the tar has %d bytes instead of %d: %v", len(tar), want.Len(), err)
	}
	s.set(nil)
	last = 0
	if err := Push(t.Context(), a, s.name(":42"), config(0)); err != nil || s.sent() != 0 {
		t.Errorf("a second push sends %q: %v", s.puts, err)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text := bundle.NewSignature(b.Contents, b.ID, time.Now())
	text.Text.Sign(key)
	last = 0
	if err := errors.Join(a.SetSignature(text), Push(t.Context(), a, s.name(":42"), config(0))); err != nil || s.sent() != 4 {
		t.Errorf("a signature sends %q: %v", s.puts, err) // text, empty config, manifest, root
	}
	b, _, err = check(t.Context(), s.name(":42"), 0)
	if err != nil || b.Signature == nil || len(b.Signature.Text.Signers()) != 1 || b.ID != a.ID {
		t.Errorf("%+v, %v", b, err)
	}
	if _, _, err := check(t.Context(), s.name(":43"), 0); err == nil {
		t.Error("a tag that does not exist is a bundle")
	}
}

// TestPushEndsInTheMiddle checks that the tag names the old bundle until the registry has all blobs of the new one.
func TestPushEndsInTheMiddle(t *testing.T) {
	s, a := newServer(t), artefact(t)
	for n := range 100 {
		left := n
		s.set(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				left--
			}
			if left < 0 {
				w.WriteHeader(http.StatusForbidden)
			}
			return left < 0
		})
		err := Push(t.Context(), a, s.name(fmt.Sprint(":", n)), config(0))
		s.set(nil)
		_, _, missing := check(t.Context(), s.name(fmt.Sprint(":", n)), 0)
		if (err == nil) != (missing == nil) {
			t.Errorf("after %d writes: push %v, bundle %v", n, err, missing)
		}
		if err == nil {
			return
		}
	}
	t.Error("the push never succeeds")
}

// TestHostileRegistry checks registries that answer with other bytes, with fewer or more bytes, with another manifest, with nothing, or
// forever: each is an error, within bounds.
func TestHostileRegistry(t *testing.T) {
	s, a := newServer(t), artefact(t)
	if err := Push(t.Context(), a, s.name(":42"), config(0)); err != nil {
		t.Fatal(err)
	}
	const stall = 300 * time.Millisecond
	isLayer := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
	}
	isManifest := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/")
	}
	write := func(text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
	}
	endless := func(chunk string, pause time.Duration) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
					return
				case <-time.After(pause):
				}
			}
		}
	}
	for name, tt := range map[string]struct {
		of     func(*http.Request) bool
		answer func(http.ResponseWriter, *http.Request)
	}{
		"layers with other bytes":    {isLayer, write(strings.Repeat("x", 1<<20))},
		"empty layers":               {isLayer, write("")},
		"manifests with other bytes": {isManifest, write(`{"schemaVersion":2}`)},
		"endless layers":             {isLayer, endless(strings.Repeat("x", 1<<16), 0)},
		"endless manifests":          {isManifest, endless(strings.Repeat(" ", 1<<16), 0)},
		"a byte now and then":        {isLayer, endless("x", stall/3)},
		"no answer":                  {isLayer, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		"a compressed answer":        {isManifest, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "zstd") }},
		"a redirect to itself": {isLayer, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}},
		"an error page without end": {isLayer, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			endless(strings.Repeat("x", 1<<16), 0)(w, r)
		}},
		"a root of another type": {func(r *http.Request) bool { return r.Method == http.MethodHead }, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
			w.Header().Set("Content-Length", "100")
		}},
		"a header of several megabyte": {isLayer, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 4<<20)) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServerLike(t, s)
			s.set(func(w http.ResponseWriter, r *http.Request) bool {
				if tt.of(r) {
					tt.answer(w, r)
				}
				return tt.of(r)
			})
			began := time.Now()
			if _, _, err := check(t.Context(), s.name(":42"), stall); err == nil {
				t.Error("the answer was accepted")
			}
			if d := time.Since(began); d > 100*stall {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// TestNoRegistry checks a server that accepts everything, such as the page of a hotel's network: a push to it fails, and no image has the
// digest of its page.
func TestNoRegistry(t *testing.T) {
	s, a := newServer(t), artefact(t)
	s.set(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<html>welcome</html>")
		return true
	})
	if err := Push(t.Context(), a, s.name(":42"), config(0)); err == nil {
		t.Error("a page is a bundle")
	}
	name := strings.TrimPrefix(s.name(":42"), Scheme)
	if d, err := (Images{config(0)}).Resolve(t.Context(), name); err == nil || !strings.Contains(err.Error(), "text/html") {
		t.Errorf("%s, %v", d, err)
	}
}

// newServerLike returns a server in front of another one.
func newServerLike(t *testing.T, behind *server) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		before := s.before
		s.mu.Unlock()
		if before == nil || !before(w, r) {
			behind.Config.Handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestOtherHosts checks that a registry that redirects a download or an upload to another host does not make the client send the password
// there, and that the other host can serve the blob.
func TestOtherHosts(t *testing.T) {
	s, a := newServer(t), artefact(t)
	if err := Push(t.Context(), a, s.name(":42"), config(0)); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	requests, secrets := 0, []string(nil)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests++
		if h := r.Header.Get("Authorization") + r.Header.Get("Cookie"); h != "" {
			secrets = append(secrets, r.Method+" "+h)
		}
		mu.Unlock()
		r.Header.Set("Authorization", "Basic YW5uYTpvcGVuLXNlc2FtZQ==") // it is a cache of the registry
		s.Config.Handler.ServeHTTP(w, r)
	}))
	defer other.Close()
	front := newServerLike(t, s)
	front.set(func(w http.ResponseWriter, r *http.Request) bool {
		blob := strings.Contains(r.URL.Path, "/blobs/")
		switch {
		case blob && r.Method == http.MethodGet:
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		case blob && r.Method == http.MethodPost && r.Header.Get("Authorization") != "":
			w.Header().Set("Location", other.URL+"/v2/team/other/blobs/uploads/1")
			w.WriteHeader(http.StatusAccepted)
		default:
			return false
		}
		return true
	})
	if _, _, err := check(t.Context(), front.name(":42"), 0); err != nil {
		t.Errorf("download from the other host: %v", err)
	}
	name := strings.Replace(front.name(":1"), "/kiosk", "/other", 1)
	_ = Push(t.Context(), a, name, config(time.Second)) // the result does not matter
	mu.Lock()
	defer mu.Unlock()
	if requests == 0 || len(secrets) > 0 {
		t.Errorf("%d requests, the other host got %q", requests, secrets)
	}
}

// TestNames checks which names are those of bundles in a registry.
func TestNames(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for name, ok := range map[string]bool{
		"oci://r.example/kiosk:1": true, "oci://r.example:5000/a/b/kiosk:1": true, "oci://r.example/kiosk" + digest: true,
		"oci://kiosk:1": false, "oci://r.example/kiosk": false, "oci://R.example/Kiosk:1": false, "oci://": false, "oci://https://r.example/k:1": false,
		"oci://r.example/kiosk:1/..": false, "oci://r.example/k k:1": false, "oci://team/kiosk:1": false,
	} {
		_, err := newClient(name, registry.Config{})
		if !Is(name) || (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if Is("oci:kiosk") || Is("kiosk.tar") {
		t.Error("a file is a registry")
	}
}
