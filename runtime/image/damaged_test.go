package image

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// These functions damage a file as a disk or a power cut does.
var damages = map[string]func(path string) error{
	"other bytes": func(path string) error {
		b, err := os.ReadFile(path)
		if err == nil {
			b[len(b)/2] ^= 0x20
			err = replaceFile(path, b)
		}
		return err
	},
	"zeros": func(path string) error {
		b, err := os.ReadFile(path)
		if err == nil {
			clear(b)
			err = replaceFile(path, b)
		}
		return err
	},
	"empty":   func(path string) error { return replaceFile(path, nil) },
	"missing": os.Remove,
}

func replaceFile(path string, b []byte) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o444)
}

// documentsOf returns the paths of the files of all stored documents.
func documentsOf(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "content/blobs/sha256/*"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	return all
}

// TestDamagedDocuments damages each document of an image in different ways while no agent runs. The image then counts as missing. A pull
// and an import repair it. RemoveImage, Untag and Reclaim remove it completely.
func TestDamagedDocuments(t *testing.T) {
	img := small(t)
	list := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img})
	hub := newServer(t, false)
	hub.pushIndex(t, "demo:1", list)
	certs := plainDir(t, hub.URL)
	archived := dockerArchive(t, map[string]v1.Image{"registry.example/archived:1": img})
	const pulled, imported = "registry.example/demo:1", "registry.example/archived:1"
	remove := func(ref string) func(s *Service) error {
		return func(s *Service) error {
			_, err := s.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: ref}})
			return err
		}
	}
	for _, test := range []struct {
		name, ref string
		repair    bool
		act       func(s *Service) error
	}{
		{"pull", pulled, true, func(s *Service) error { _, err := pull(t.Context(), s, pulled, nil); return err }},
		{"import", imported, true, func(s *Service) error {
			_, err := s.ImportArchive(t.Context(), bytes.NewReader(archived), "archive", nil)
			return err
		}},
		{"remove", pulled, false, remove(pulled)},
		{"remove an import", imported, false, remove(imported)},
		{"untag", pulled, false, func(s *Service) error { return s.Untag(t.Context(), pulled) }},
		{"reclaim", pulled, false, func(s *Service) error { return s.Reclaim(t.Context()) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := onSmallDisk(t, 1<<30)
			d := newDaemon(t, dir)
			restart := func() *Service { return serviceOn(t, d, dir, func(c *Config) { c.CertsDir = certs }) }
			fill := func(s *Service) {
				t.Helper()
				var err error
				if test.ref == pulled {
					_, err = pull(t.Context(), s, pulled, nil)
				} else {
					_, err = s.ImportArchive(t.Context(), bytes.NewReader(archived), "archive", nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				collect(t, s) // removes the layers' blobs
			}
			fill(restart())
			n := len(documentsOf(t, dir))
			for i := range n {
				for kind, damage := range damages {
					path := documentsOf(t, dir)[i]
					if err := damage(path); err != nil {
						t.Fatal(err)
					}
					s := restart()
					if _, err := s.Resolve(t.Context(), test.ref); err == nil {
						t.Errorf("document %d, %s: the image is used", i, kind)
					}
					if err := test.act(s); err != nil {
						t.Fatalf("document %d, %s: %v", i, kind, err)
					}
					if !test.repair {
						if got := left(t, s); len(got) > 0 {
							t.Errorf("document %d, %s: left over: %q", i, kind, got)
						}
						fill(s)
						continue
					}
					collect(t, s)
					wantImage(t, s, test.ref, imageID(t, img))
					wantImage(t, restart(), test.ref, imageID(t, img))
					wantFiles(t, s, test.ref, map[string]string{"hello": "hello\n"}, "gone")
				}
			}
		})
	}
}

// TestPinnedIsKept checks that Reclaim keeps the name of a damaged image that is pinned, because the bundle in use names it.
func TestPinnedIsKept(t *testing.T) {
	dir := onSmallDisk(t, 1<<30)
	d := newDaemon(t, dir)
	s := serviceOn(t, d, dir, nil)
	archived := dockerArchive(t, map[string]v1.Image{"registry.example/archived:1": small(t)})
	if _, err := s.ImportArchive(t.Context(), bytes.NewReader(archived), "archive", nil); err != nil {
		t.Fatal(err)
	}
	if err := damages["zeros"](documentsOf(t, dir)[0]); err != nil {
		t.Fatal(err)
	}
	s = serviceOn(t, d, dir, nil)
	s.PinImages([]string{"registry.example/archived:1"})
	if err := s.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(left(t, s), " "); !strings.Contains(got, "image registry.example/archived:1") {
		t.Errorf("left: %s", got)
	}
}

// TestSharedDocument damages a document that two names share. After a pull of one name has replaced the document, the other name is intact
// too: it is found, Reclaim keeps it, and RemoveImage removes both.
func TestSharedDocument(t *testing.T) {
	img := small(t)
	hub := newServer(t, false)
	for _, name := range []string{"demo:1", "demo:2"} {
		hub.push(t, name, img)
	}
	certs := plainDir(t, hub.URL)
	const one, two = "registry.example/demo:1", "registry.example/demo:2"
	dir := onSmallDisk(t, 1<<30)
	d := newDaemon(t, dir)
	restart := func() *Service { return serviceOn(t, d, dir, func(c *Config) { c.CertsDir = certs }) }
	for name, act := range map[string]func(s *Service) error{
		"reclaim": func(s *Service) error { return s.Reclaim(t.Context()) },
		"resolve": func(s *Service) error { _, err := s.Resolve(t.Context(), two); return err },
		"remove": func(s *Service) error {
			_, err := s.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: two}})
			return err
		},
	} {
		s := restart()
		for _, ref := range []string{one, two} {
			if _, err := pull(t.Context(), s, ref, nil); err != nil {
				t.Fatal(err)
			}
		}
		collect(t, s) // removes the layers' blobs
		for _, path := range documentsOf(t, dir) {
			if err := damages["zeros"](path); err != nil {
				t.Fatal(err)
			}
		}
		s = restart()
		if _, err := s.Resolve(t.Context(), two); err == nil {
			t.Fatalf("%s: a damaged image is used", name)
		}
		if _, err := pull(t.Context(), s, one, nil); err != nil {
			t.Fatal(err)
		}
		if err := act(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "remove" {
			if got := left(t, s); len(got) > 0 {
				t.Errorf("left over: %q", got)
			}
			continue
		}
		for _, s := range []*Service{s, restart()} {
			wantImage(t, s, one, imageID(t, img))
			wantImage(t, s, two, imageID(t, img))
		}
	}
}

// TestRetriesAreRare repairs the documents of a damaged image behind the back of the service. Look-ups do not read them again at once. A
// removal does, and so do look-ups later and after a pull or an import of another image.
func TestRetriesAreRare(t *testing.T) {
	const ref = "registry.example/archived:1"
	dir := onSmallDisk(t, 1<<30)
	d := newDaemon(t, dir)
	archive := func(name string) []byte { return dockerArchive(t, map[string]v1.Image{name: small(t)}) }
	load := func(s *Service, b []byte) {
		t.Helper()
		if _, err := s.ImportArchive(t.Context(), bytes.NewReader(b), "archive", nil); err != nil {
			t.Fatal(err)
		}
	}
	load(serviceOn(t, d, dir, nil), archive(ref))
	path := documentsOf(t, dir)
	for name, act := range map[string]func(s *Service){
		"later": func(s *Service) {
			s.index.mu.Lock()
			for name := range s.index.retryAt {
				s.index.retryAt[name] = time.Now()
			}
			s.index.mu.Unlock()
		},
		"import": func(s *Service) { load(s, dockerArchive(t, map[string]v1.Image{"other:1": imageOf(t, "")})) },
		"removal": func(s *Service) {
			if err := s.Reclaim(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		whole := map[string][]byte{}
		for _, p := range path {
			b, err := os.ReadFile(p)
			if err == nil {
				err = damages["zeros"](p)
			}
			if err != nil {
				t.Fatal(err)
			}
			whole[p] = b
		}
		s := serviceOn(t, d, dir, nil)
		s.retryRatio = 1e6 // as if each attempt took long
		if _, err := s.Resolve(t.Context(), ref); err == nil {
			t.Fatalf("%s: a damaged image is used", name)
		}
		for p, b := range whole {
			if err := replaceFile(p, b); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Resolve(t.Context(), ref); err == nil {
			t.Errorf("%s: the image was read again at once", name)
		}
		act(s)
		if _, err := s.Resolve(t.Context(), ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestShortDisturbance checks that an image is found as soon as its documents can be read again, if the attempts before did not take long.
func TestShortDisturbance(t *testing.T) {
	const ref = "registry.example/archived:1"
	dir := onSmallDisk(t, 1<<30)
	d := newDaemon(t, dir)
	b := dockerArchive(t, map[string]v1.Image{ref: small(t)})
	if _, err := serviceOn(t, d, dir, nil).ImportArchive(t.Context(), bytes.NewReader(b), "archive", nil); err != nil {
		t.Fatal(err)
	}
	whole := map[string][]byte{}
	for _, p := range documentsOf(t, dir) {
		b, err := os.ReadFile(p)
		if err == nil {
			err = damages["zeros"](p)
		}
		if err != nil {
			t.Fatal(err)
		}
		whole[p] = b
	}
	s := serviceOn(t, d, dir, nil)
	s.retryRatio = 0 // as if each attempt took no time
	for range 2 {
		if _, err := s.Resolve(t.Context(), ref); err == nil {
			t.Fatal("a damaged image is used")
		}
	}
	if incomplete, err := s.HasIncomplete(t.Context()); !incomplete || err != nil {
		t.Error("the damaged image is forgotten:", err)
	}
	for p, b := range whole {
		if err := replaceFile(p, b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Resolve(t.Context(), ref); err != nil {
		t.Error(err)
	}
	if incomplete, err := s.HasIncomplete(t.Context()); incomplete || err != nil {
		t.Error("the whole image is still incomplete:", err)
	}
}
