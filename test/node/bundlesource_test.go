package node

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// A source serves one bundle on the loopback interface of a machine: as the directory /kiosk/, and as the tag kiosk:stable of a registry.
type source struct {
	*httptest.Server
	b *bundles

	mu    sync.Mutex
	dir   string                                        // of the bundle
	lie   func(http.ResponseWriter, *http.Request) bool // returns true if it has answered; may be nil
	heads []string                                      // the client's address of each HEAD of the tag
}

// newSource starts the server, and writes its certificate.
func newSource(b *bundles) *source {
	b.Helper()
	s := &source{b: b}
	s.Server = serveTrusted(b, b.m, s)
	return s
}

// reference returns the name of the bundle in the registry.
func (s *source) reference() string {
	return "oci://" + strings.TrimPrefix(s.URL, "https://") + "/kiosk:stable"
}

// publish builds and signs a bundle, and serves it from now on. The function lie may replace answers; it may be nil.
func (s *source) publish(number int, pods map[string]string, lie func(http.ResponseWriter, *http.Request) bool) {
	s.b.Helper()
	s.b.build(number, "", pods)
	dir := filepath.Join(s.b.m.Disk, fmt.Sprint("published-", number))
	s.b.m.Islet("bundle", "build", s.b.m.Disk+"/kiosk", "-o", dir+"/", "--number", fmt.Sprint(number))
	s.b.m.Islet("bundle", "sign", dir+"/", "--key", s.b.m.Disk+"/anna.key")
	s.serve(number, lie)
}

// serve serves an earlier bundle again.
func (s *source) serve(number int, lie func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dir, s.lie, s.heads = filepath.Join(s.b.m.Disk, fmt.Sprint("published-", number)), lie, nil
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	dir, lie := s.dir, s.lie
	if r.Method == http.MethodHead {
		s.heads = append(s.heads, r.RemoteAddr)
	}
	s.mu.Unlock()
	if lie != nil && lie(w, r) {
		return
	}
	if file, isFile := strings.CutPrefix(r.URL.Path, "/kiosk/"); isFile {
		http.ServeFile(w, r, filepath.Join(dir, filepath.FromSlash(file)))
		return
	}
	digest := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if digest == "stable" {
		var index struct{ Manifests []struct{ Digest string } }
		text, err := os.ReadFile(filepath.Join(dir, "index.json"))
		if err != nil || json.Unmarshal(text, &index) != nil {
			http.NotFound(w, r)
			return
		}
		digest = index.Manifests[0].Digest
	}
	blob, err := os.ReadFile(filepath.Join(dir, "blobs/sha256", strings.TrimPrefix(digest, "sha256:")))
	if err != nil || !strings.HasPrefix(r.URL.Path, "/v2/kiosk/") {
		http.NotFound(w, r)
		return
	}
	if strings.Contains(r.URL.Path, "/manifests/") {
		var document struct{ MediaType string }
		_ = json.Unmarshal(blob, &document)
		w.Header().Set("Content-Type", document.MediaType)
		w.Header().Set("Docker-Content-Digest", digest)
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(blob)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(blob)
	}
}

// awaitChecks waits until the tag was requested a number of times since it was served, and returns the number of connections.
func (s *source) awaitChecks(n int) int {
	s.b.Helper()
	conns := map[string]bool{}
	s.b.m.Await(fmt.Sprint(n, " checks of the tag"), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, address := range s.heads {
			conns[address] = true
		}
		return len(s.heads) >= n
	})
	return len(conns)
}

// TestBundleSource applies bundles from a registry and from the directory of a web server, and follows a tag. An import of another image
// under the name of the bundle's image changes no pod, and the next bundle does not use it. While the tag is the same, the node checks it
// over one connection. A tag that is moved to an older bundle, and a registry that sends other bytes or too few, change nothing. The next
// honest answer does.
func TestBundleSource(t *testing.T) {
	t.Parallel()
	b := newBundles(t)
	s, m := newSource(b), b.m
	m.StartAgent()
	pods := func(name string) map[string]string {
		return map[string]string{"one": manifest("one", "", "count", "100ms"), name: manifest(name, "", "sleep")}
	}
	s.publish(1, pods("first"), nil)
	if out := m.Islet("bundle", "apply", s.reference(), "--wait"); !strings.Contains(out, "kiosk number 1 is in use") {
		t.Error(out)
	}
	was := m.WaitReady("one", "first")
	imageOf := func(p machine.Pod) string { return p.Status.ContainerStatuses[0].ImageID }
	other := machine.ArchivesOf(t, map[string]int{"podtool": 1})[0] // another image with the name of that in the bundle
	if out := m.Islet("images", "import", other); !strings.Contains(out, machine.Image) {
		t.Errorf("the import of the other image: %s", out)
	}
	s.publish(2, pods("second"), nil)
	if out := m.Islet("bundle", "apply", s.URL+"/kiosk/", "--wait"); !strings.Contains(out, "kiosk number 2 is in use") {
		t.Error(out)
	}
	now := m.WaitReady("one", "second")
	requireSame(t, was["one"], now["one"])
	if imageOf(now["second"]) != imageOf(was["first"]) {
		t.Errorf("a pod of a bundle has the image of an import: %s, want %s", imageOf(now["second"]), imageOf(was["first"]))
	}

	b.follow(s.reference())
	s.publish(3, pods("third"), nil)
	b.inUse(3)
	m.WaitReady("one", "third")
	s.serve(3, nil)
	if n := s.awaitChecks(4); n != 1 {
		t.Errorf("four checks of a tag that is the same used %d connections", n)
	}
	s.serve(1, nil)
	s.awaitChecks(2)
	b.inUse(3)
	lie := func(answer string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			isBlob := strings.Contains(r.URL.Path, "/blobs/")
			if isBlob {
				_, _ = io.WriteString(w, answer)
			}
			return isBlob
		}
	}
	for i, answer := range []string{"{", strings.Repeat("other bytes", 1000)} { // too few, and too many
		s.publish(4+i, pods("fourth"), lie(answer))
		m.Await("the problem", func() bool {
			return strings.Contains(m.Islet("bundle", "status", "-o", "json"), `"problem"`)
		})
		b.inUse(3)
	}
	s.publish(6, pods("sixth"), nil)
	b.inUse(6)
	requireSame(t, was["one"], m.WaitReady("one", "sixth")["one"])
}
