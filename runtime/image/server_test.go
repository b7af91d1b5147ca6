package image

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	fakeregistry "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A server is a registry that records requests and can interrupt its responses.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []string                                      // "GET /v2/... Range"
	sizes  map[string]int64                              // size of each blob
	cut    func(blob string) int                         // returns the number of bytes after which the response for a blob is interrupted
	before func(http.ResponseWriter, *http.Request) bool // returns true if it has already sent the response
}

func newServer(t testing.TB, tls bool) *server {
	t.Helper()
	inner := fakeregistry.New(fakeregistry.Logger(log.New(io.Discard, "", 0)))
	s := &server{sizes: map[string]int64{}}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
		cut, before := s.cut, s.before
		if from := r.Header.Get("Range"); strings.HasSuffix(from, "-") { // the inner handler does not support the Range header
			r.Header.Set("Range", from+strconv.FormatInt(s.sizes[path.Base(r.URL.Path)]-1, 10))
		}
		s.mu.Unlock()
		if before != nil && before(w, r) {
			return
		}
		if _, blob, ok := strings.Cut(r.URL.Path, "/blobs/"); ok && r.Method == http.MethodGet && cut != nil {
			w = &cutWriter{ResponseWriter: w, left: cut(blob)}
		}
		inner.ServeHTTP(w, r)
	})
	if tls {
		s.Server = httptest.NewTLSServer(h)
	} else {
		s.Server = httptest.NewServer(h)
	}
	t.Cleanup(s.Close)
	return s
}

// A cutWriter closes the connection after it has written the given number of bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if c.left >= len(p) {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	c.ResponseWriter.Write(p[:c.left])
	c.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func (s *server) host(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// push adds an image to the registry. It returns the digest of the manifest.
func (s *server) push(t testing.TB, repo string, img v1.Image) string {
	t.Helper()
	repo, tag, _ := strings.Cut(repo, ":")
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	s.pushBlob(t, repo, imageID(t, img), bytes.NewReader(config))
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		sum, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		body, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		s.pushBlob(t, repo, sum.String(), body)
	}
	manifest, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	mt, err := img.MediaType()
	if err != nil {
		t.Fatal(err)
	}
	s.send(t, http.MethodPut, "/v2/"+repo+"/manifests/"+tag, string(mt), manifest)
	sum, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return sum.String()
}

// pushIndex adds an index with its images to the registry.
func (s *server) pushIndex(t testing.TB, ref string, index v1.ImageIndex) {
	t.Helper()
	list, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	repo, tag, _ := strings.Cut(ref, ":")
	for _, m := range list.Manifests {
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		s.push(t, repo+":"+m.Digest.Hex, img)
	}
	text, err := index.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	s.send(t, http.MethodPut, "/v2/"+repo+"/manifests/"+tag, string(list.MediaType), text)
}

func (s *server) pushBlob(t testing.TB, repo, sum string, r io.Reader) {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.sizes[sum] = int64(len(b))
	s.mu.Unlock()
	s.send(t, http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+sum, "application/octet-stream", b)
}

func (s *server) send(t testing.TB, method, path, contentType string, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	r, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s: %s", method, path, r.Status)
	}
}

func (s *server) requests(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, a := range s.asked {
		if strings.HasPrefix(a, prefix) {
			out = append(out, a)
		}
	}
	return out
}

func (s *server) set(f func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = nil
	f(s)
}

// certsDir returns a directory with a hosts.toml for registry.example. The file lists the hosts as mirrors in the given order.
func certsDir(t testing.TB, hosts ...string) string {
	t.Helper()
	dir := t.TempDir()
	toml := ""
	for _, h := range hosts {
		toml += fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", h)
		toml += "  ca = \"ca.crt\"\n"
	}
	writeFile(t, filepath.Join(dir, "registry.example", "hosts.toml"), []byte("server = \""+hosts[len(hosts)-1]+"\"\n"+toml))
	return dir
}

func writeCA(t *testing.T, dir string, s *server) {
	t.Helper()
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	writeFile(t, filepath.Join(dir, "registry.example", "ca.crt"), b)
}

// plainDir is like certsDir, for hosts without TLS.
func plainDir(t testing.TB, hosts ...string) string {
	t.Helper()
	dir := t.TempDir()
	toml := "server = \"" + hosts[len(hosts)-1] + "\"\n"
	for _, h := range hosts {
		toml += fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", h)
	}
	writeFile(t, filepath.Join(dir, "registry.example", "hosts.toml"), []byte(toml))
	return dir
}
