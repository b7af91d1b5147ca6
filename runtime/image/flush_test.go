package image

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// breakFlush makes the next flush fail. As on a disk that does not store the data, the file "data" of every unpacked layer loses its
// content, and later flushes succeed.
func breakFlush(t *testing.T, s *Service) {
	t.Helper()
	s.flushes.sync = func(int) error {
		s.flushes.sync = unix.Syncfs
		files, err := filepath.Glob(filepath.Join(s.c.Root, "overlayfs/snapshots/*/fs/data"))
		if err != nil || len(files) == 0 {
			t.Errorf("no layer is unpacked: %v", err)
		}
		for _, f := range files {
			if err := os.WriteFile(f, nil, 0o644); err != nil {
				t.Error(err)
			}
		}
		return unix.EIO
	}
}

// TestFailedFlush checks an import and a pull whose flush fails. The next attempt unpacks the layers again, because the kernel reports a
// write error only once.
func TestFailedFlush(t *testing.T) {
	img := imageOf(t, "", layerOf(t, file{name: "data", body: "base"}), layerOf(t, file{name: "top", body: "top"}))
	hub := newServer(t, false)
	hub.push(t, "demo:1", img)
	archive := dockerArchive(t, map[string]v1.Image{"registry.example/demo:1": img})
	attempts := map[string]func(*Service) error{
		"pull": func(s *Service) error { _, err := pull(t.Context(), s, "registry.example/demo:1", nil); return err },
	}
	for name, imp := range importers {
		attempts[name] = func(s *Service) error { _, err := imp(t, s, archive); return err }
	}
	for name, attempt := range attempts {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
			breakFlush(t, s)
			if err := attempt(s); !errors.Is(err, unix.EIO) || strings.Contains(err.Error(), "RegistryUnavailable") {
				t.Errorf("the first attempt: %v", err)
			}
			// The pull of this image found all layers before the failure, and has no layer to unpack.
			if err := s.flushes.flush(0); !errors.Is(err, errLayersLost) {
				t.Errorf("a later flush of an earlier pull: %v", err)
			}
			if err := attempt(s); err != nil {
				t.Fatal(err)
			}
			wantFiles(t, s, "registry.example/demo:1", map[string]string{"data": "base", "top": "top"})
			collect(t, s)
			if n := count(left(t, s), "snapshot "); n != 2 || s.flushes.root != nil || len(s.flushes.unflushed)+len(s.flushes.lost) > 0 {
				t.Errorf("%d snapshots are left, and %v", n, &s.flushes)
			}
		})
	}
}

// TestFailedFlushOfOther checks pulls that run while the flush of another pull fails. They fail too, because the kernel may have lost
// their data: a pull that uses a layer of the other one, and a pull that is unpacking. An image that was flushed before is not affected,
// and a pull that begins later succeeds.
func TestFailedFlushOfOther(t *testing.T) {
	base := layerOf(t, file{name: "data", body: "base"})
	hub := newServer(t, false)
	s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
	slow := map[string]bool{}
	for tag, img := range map[string]v1.Image{
		"good": imageOf(t, "", layerOf(t, file{name: "good", body: "good"})), "first": imageOf(t, "", base),
		"second": imageOf(t, "", base, layerOf(t, file{name: "own", body: "own"})),
		"apart":  imageOf(t, "", layerOf(t, file{name: "data", body: "apart"}), layerOf(t, file{name: "top", body: "top"})),
	} {
		hub.push(t, "demo:"+tag, img)
		layers, err := img.Layers()
		if err != nil {
			t.Fatal(err)
		}
		if len(layers) == 2 { // its top layer arrives late
			sum, err := layers[1].Digest()
			if err != nil {
				t.Fatal(err)
			}
			slow["/v2/demo/blobs/"+sum.String()] = true
		}
	}
	try := func(tag string) error { _, err := pull(t.Context(), s, "registry.example/demo:"+tag, nil); return err }
	if err := try("good"); err != nil {
		t.Fatal(err)
	}
	asked, goOn := make(chan string, 8), make(chan struct{})
	hub.set(func(h *server) {
		h.before = func(_ http.ResponseWriter, r *http.Request) bool {
			if slow[r.URL.Path] && r.Method == http.MethodGet {
				asked <- r.URL.Path
				<-goOn
			}
			return false
		}
	})
	flushing, fail := make(chan struct{}), make(chan struct{})
	breakFlush(t, s)
	broken := s.flushes.sync
	s.flushes.sync = func(fd int) error { close(flushing); <-fail; return broken(fd) }
	start := func(tag string) <-chan error {
		result := make(chan error, 1)
		go func() { result <- try(tag) }()
		return result
	}
	failing := start("first")
	<-flushing
	second, apart := start("second"), start("apart") // the second image finds the base layer
	<-asked
	<-asked
	close(fail)
	if err := <-failing; !errors.Is(err, unix.EIO) {
		t.Errorf("the failed flush: %v", err)
	}
	close(goOn)
	for _, running := range []<-chan error{second, apart} {
		if err := <-running; !errors.Is(err, errLayersLost) {
			t.Errorf("a pull during the failed flush: %v", err)
		}
	}
	for _, tag := range []string{"first", "second", "apart"} {
		if err := try(tag); err != nil {
			t.Errorf("%s, the next attempt: %v", tag, err)
		}
	}
	wantFiles(t, s, "registry.example/demo:good", map[string]string{"good": "good"})
	wantFiles(t, s, "registry.example/demo:second", map[string]string{"data": "base", "own": "own"})
	wantFiles(t, s, "registry.example/demo:apart", map[string]string{"data": "apart", "top": "top"})
}
