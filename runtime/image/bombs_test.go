package image

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// mostHeap is the maximum memory that a hostile image may use, in bytes.
const mostHeap = 96 << 20

// heapOf returns how much the memory of this process grows while f runs. The garbage collector has the settings of an agent with little
// memory.
func heapOf(t *testing.T, f func()) int64 {
	t.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	used := func() int64 {
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64() - sample[1].Value.Uint64())
	}
	before := used()
	old := debug.SetMemoryLimit(before + 32<<20)
	defer debug.SetMemoryLimit(old)
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		peak := before
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				peak = max(peak, used())
			case <-stop:
				most <- peak
				return
			}
		}
	}()
	f()
	close(stop)
	return <-most - before
}

// wantHeap fails the test if f uses more than the given number of bytes.
func wantHeap(t *testing.T, most int64, f func()) {
	t.Helper()
	n := heapOf(t, f)
	t.Logf("%d MiB of memory", n>>20)
	if n > most {
		t.Errorf("it took %d MiB of memory, more than %d", n>>20, most>>20)
	}
}

// wide returns a JSON document of about n bytes. It contains a list of equal values.
func wide(before, entry, after string, n int) []byte {
	return []byte(before + strings.Repeat(entry+",", max(1, n/(len(entry)+1))) + entry + after)
}

// A bombRegistry serves blobs and manifests from memory. It compresses them with gzip if the client accepts this.
type bombRegistry struct {
	*server
	blobs map[string][]byte // gzip-compressed blobs by digest
	sizes map[string]int
	types map[string]string
	root  string
}

func newBombRegistry(t *testing.T) *bombRegistry {
	t.Helper()
	b := &bombRegistry{server: newServer(t, false), blobs: map[string][]byte{}, sizes: map[string]int{}, types: map[string]string{}}
	b.set(func(h *server) { h.before = b.answer })
	return b
}

func (b *bombRegistry) answer(w http.ResponseWriter, r *http.Request) bool {
	sum := filepath.Base(r.URL.Path)
	if sum == "1" {
		sum = b.root
	}
	body, ok := b.blobs[sum]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return true
	}
	w.Header().Set("Content-Type", b.types[sum])
	w.Header().Set("Docker-Content-Digest", sum)
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Length", fmt.Sprint(b.sizes[sum]))
		return true
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(body)
		return true
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err == nil {
		_, _ = io.Copy(w, z)
	}
	return true
}

// add adds a document to the registry. The last document has the tag 1.
func (b *bombRegistry) add(t *testing.T, mediaType string, doc []byte) ocispec.Descriptor {
	t.Helper()
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(doc), Size: int64(len(doc))}
	b.root = d.Digest.String()
	b.blobs[b.root], b.sizes[b.root], b.types[b.root] = gzipped(t, doc), len(doc), mediaType
	return d
}

// The padding of indexOf, which takes long to make with the race detector.
var padding = bytes.Repeat([]byte(" "), 4<<20)

// indexOf returns an image index with the given entries, padded to n bytes.
func indexOf(t *testing.T, n int, entries ...ocispec.Descriptor) []byte {
	t.Helper()
	text := toJSON(t, map[string]any{"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageIndex, "manifests": entries})
	return append([]byte(text), padding[:max(0, n-len(text))]...)
}

const manifestOpen = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",`

// This map contains image documents that are small on the network and large in memory. The document that is added last is the root of the
// image.
var documentBombs = map[string]struct {
	want string
	add  func(*testing.T, *bombRegistry)
}{
	"indexes in an index": {"more than", func(t *testing.T, b *bombRegistry) {
		var list []ocispec.Descriptor
		for i := range 40 {
			list = append(list, b.add(t, ocispec.MediaTypeImageIndex, indexOf(t, 4<<20-i, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(fmt.Sprint(i)), Size: 1, Platform: &ocispec.Platform{OS: "plan9", Architecture: "mips"}})))
		}
		b.add(t, ocispec.MediaTypeImageIndex, indexOf(t, 0, list...))
	}},
	"empty entries": {"more than 1024 entries", func(t *testing.T, b *bombRegistry) {
		b.add(t, ocispec.MediaTypeImageIndex, wide(`{"manifests":[`, "{}", "]}", 4<<20-100))
	}},
	"empty entries, as long as a registry lets": {"rejecting 8388525 byte manifest", func(t *testing.T, b *bombRegistry) {
		b.add(t, ocispec.MediaTypeImageIndex, wide(`{"manifests":[`, "{}", "]}", 8<<20-100))
	}},
	"annotations": {"", func(t *testing.T, b *bombRegistry) {
		b.add(t, ocispec.MediaTypeImageIndex, wide(`{"manifests":[{"annotations":{`, `"":""`, "}}]}", 4<<20-100))
	}},
	"long words": {"more than 255", func(t *testing.T, b *bombRegistry) {
		b.add(t, ocispec.MediaTypeImageIndex, []byte(`{"manifests":[{"mediaType":"`+strings.Repeat("x", 4<<20-100)+`"}]}`))
	}},
	"features": {"more than 64 entries", func(t *testing.T, b *bombRegistry) {
		b.add(t, ocispec.MediaTypeImageIndex, wide(`{"manifests":[{"platform":{"os.features":[`, `""`, "]}}]}", 4<<20-100))
	}},
	"layers": {"more than 1000 entries", func(t *testing.T, b *bombRegistry) {
		b.add(t, ocispec.MediaTypeImageManifest, wide(manifestOpen+`"layers":[`, "{}", "]}", 4<<20-200))
	}},
	"depth": {"exceeded max depth", func(t *testing.T, b *bombRegistry) {
		b.add(t, ocispec.MediaTypeImageManifest, []byte(manifestOpen+`"x":`+strings.Repeat("[", 4<<20-200)+"}"))
	}},
	"many fields": {"has no config", func(t *testing.T, b *bombRegistry) {
		b.add(t, ocispec.MediaTypeImageManifest, wide(manifestOpen, `"":[]`, "}", 4<<20-200))
	}},
	"a layer by the name of a config": {"more than the", func(t *testing.T, b *bombRegistry) {
		b.addImage(t, make([]byte, 64<<20))
	}},
	"history": {"", func(t *testing.T, b *bombRegistry) { b.addImage(t, wide(`{"history":[`, "{}", "]}", 1<<20-100)) }},
	"labels": {"", func(t *testing.T, b *bombRegistry) {
		b.addImage(t, wide(`{"config":{"Labels":{`, `"":""`, "}}}", 1<<20-100))
	}},
	"environment": {"more than 16384 entries", func(t *testing.T, b *bombRegistry) {
		b.addImage(t, wide(`{"config":{"Env":[`, `""`, "]}}", 1<<20-100))
	}},
	"volumes": {"more than 16384 entries", func(t *testing.T, b *bombRegistry) {
		text := []byte(`{"config":{"Volumes":{`)
		for i := range 70000 {
			text = fmt.Appendf(text, `"%d":{},`, i)
		}
		b.addImage(t, append(text, `"":{}}}}`...))
	}},
	"layers in the config": {"more than 500 entries", func(t *testing.T, b *bombRegistry) {
		b.addImage(t, wide(`{"rootfs":{"diff_ids":[`, `""`, "]}}", 1<<20-100))
	}},
	"a user": {"more than 4096", func(t *testing.T, b *bombRegistry) {
		b.addImage(t, []byte(`{"config":{"User":"`+strings.Repeat("u", 1<<20-100)+`"}}`))
	}},
}

// addImage adds an image without layers to the registry.
func (b *bombRegistry) addImage(t *testing.T, config []byte) {
	t.Helper()
	c := b.add(t, ocispec.MediaTypeImageConfig, config)
	b.add(t, ocispec.MediaTypeImageManifest, []byte(manifestOpen+`"config":`+toJSON(t, c)+`}`))
}

// TestDocumentBombs checks that no index, manifest or config of a registry uses much memory. Several images are pulled at the same time,
// and images are loaded again as after a restart. Without ISLET_TEST_LONG only one kind of document is pulled four times at the same time.
func TestDocumentBombs(t *testing.T) {
	for name, bomb := range documentBombs {
		parallel := 1
		if name == "empty entries" || os.Getenv("ISLET_TEST_LONG") != "" {
			parallel = 4
		}
		t.Run(name, func(t *testing.T) {
			hub := newBombRegistry(t)
			bomb.add(t, hub)
			s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
			wantHeap(t, mostHeap, func() {
				errs := make(chan error)
				for i := range parallel {
					go func() {
						_, err := pull(t.Context(), s, fmt.Sprintf("registry.example/demo%d:1", i), nil)
						errs <- err
					}()
				}
				for range parallel {
					if err := <-errs; bomb.want != "" && (err == nil || !strings.Contains(err.Error(), bomb.want)) {
						t.Errorf("pull: %v, want %q", err, bomb.want)
					}
				}
			})
			s.index.loaded = false // as if the agent has restarted
			wantHeap(t, mostHeap, func() {
				if _, err := s.Resolve(t.Context(), "registry.example/demo0:1"); err != nil && !errdefs.IsNotFound(err) {
					t.Error(err)
				}
			})
		})
	}
}

// TestConfigDocument checks that the status of an image contains the values of its config document. A restart does not change this.
func TestConfigDocument(t *testing.T) {
	hub := newBombRegistry(t)
	long := "LONG=" + strings.Repeat("x", maxCachedConfig)
	hub.addImage(t, []byte(toJSON(t, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "created": "2026-01-01T00:00:00Z", "history": []any{map[string]any{"created_by": "x"}},
		"config": map[string]any{"User": "1000:7", "Env": []string{"A=b", long}, "Entrypoint": []string{"/e"}, "Cmd": nil, "WorkingDir": "/w", "StopSignal": "SIGINT", "Volumes": map[string]any{"/v": map[string]any{}}, "Labels": map[string]any{"a": "b"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": nil},
	})))
	s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
	if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		s.index.loaded = s.index.loaded && !again
		r, err := s.Resolve(t.Context(), "registry.example/demo:1")
		if err != nil {
			t.Fatal(err)
		}
		want := ocispec.ImageConfig{User: "1000:7", Env: []string{"A=b", long}, Entrypoint: []string{"/e"}, WorkingDir: "/w", StopSignal: "SIGINT", Volumes: map[string]struct{}{"/v": {}}}
		if toJSON(t, r.Config.Config) != toJSON(t, want) || r.Config.Architecture != runtime.GOARCH {
			t.Errorf("config %.300s, want %.300s", toJSON(t, r.Config), toJSON(t, want))
		}
	}
}
