package migrate

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/system"
)

// A registry serves podtool's image under every name and tag below a prefix, without TLS, at a port of a host. The tag is an index, which
// also lists an image for another architecture. That image does not exist.
type registry struct {
	prefix string            // such as /v2/hub/
	blobs  map[string][]byte // by digest; the index by ""

	mu     sync.Mutex
	pulled map[string]bool // the names and tags of manifests, such as tools:1
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

// serveRegistry starts a registry at a port of the host's loopback address. It runs until the test ends.
func serveRegistry(t *testing.T, s *system.System, port int, prefix string) *registry {
	t.Helper()
	r := &registry{prefix: prefix, blobs: map[string][]byte{}, pulled: map[string]bool{}}
	r.read(t, machine.Archive(t))
	var l net.Listener
	err := machine.InNetwork(s.Pid(), func() (err error) { l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); return err })
	if err != nil {
		t.Fatal(err)
	}
	server, done := &http.Server{Handler: r}, make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return r
}

// read stores the blobs of the image in an archive, with a manifest and an index.
func (r *registry) read(t *testing.T, archive string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string][]byte{}
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			files[h.Name], err = io.ReadAll(in)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var images []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &images); err != nil || len(images) != 1 {
		t.Fatalf("the archive's manifest: %v, %v", images, err)
	}
	add := func(kind string, b []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(b))
		r.blobs[digest] = b
		return map[string]any{"mediaType": kind, "digest": digest, "size": len(b)}
	}
	var layers []any
	for _, l := range images[0].Layers {
		layers = append(layers, add("application/vnd.oci.image.layer.v1.tar+gzip", files[l]))
	}
	// The image has another ID than podtool's. A kubelet verifies the credentials of images that it has pulled, by ID.
	config := bytes.Replace(files[images[0].Config], []byte("{"), []byte(`{"author":"shop",`), 1)
	manifest, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "layers": layers,
		"config": add("application/vnd.oci.image.config.v1+json", config)})
	if err != nil {
		t.Fatal(err)
	}
	platform := func(of map[string]any, arch string) map[string]any {
		of["platform"] = map[string]string{"os": "linux", "architecture": arch}
		return of
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": []any{
		platform(map[string]any{"mediaType": manifestType, "digest": "sha256:" + strings.Repeat("0", 64), "size": 1}, "none"),
		platform(add(manifestType, manifest), runtime.GOARCH)}})
	if err != nil {
		t.Fatal(err)
	}
	add(indexType, index)
	r.blobs[""] = index
}

// ServeHTTP implements the parts of the protocol that a pull needs.
func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	name, ok := strings.CutPrefix(q.URL.Path, r.prefix)
	if q.URL.Path == "/v2/" {
		return
	}
	name, last, isManifest := strings.Cut(name, "/manifests/")
	if !isManifest {
		_, last, _ = strings.Cut(name, "/blobs/")
	}
	tag := last
	if isManifest && !strings.HasPrefix(last, "sha256:") {
		last = ""
	}
	b, known := r.blobs[last]
	if !ok || !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if isManifest {
		r.mu.Lock()
		r.pulled[name+":"+tag] = true
		r.mu.Unlock()
		w.Header().Set("Content-Type", manifestType)
		if bytes.Equal(b, r.blobs[""]) {
			w.Header().Set("Content-Type", indexType)
		}
	}
	w.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256(b)))
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	if q.Method != http.MethodHead {
		w.Write(b)
	}
}

// has reports whether an image was pulled.
func (r *registry) has(image string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulled[image]
}

// forget makes has report only later pulls.
func (r *registry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.pulled)
}
