package image

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// transactions returns the ID of the last transaction in containerd's metadata. It is in one of the two meta pages of the bolt file.
func transactions(t *testing.T, s *Service) int {
	t.Helper()
	f, err := os.Open(filepath.Join(s.c.Root, "meta.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const header, id = 16, 48 // size of a page's header, and offset of the ID in the page after the header
	last := uint64(0)
	for _, page := range []int64{0, int64(os.Getpagesize())} {
		var b [8]byte
		if _, err := f.ReadAt(b[:], page+header+id); err != nil {
			t.Fatal(err)
		}
		last = max(last, binary.LittleEndian.Uint64(b[:]))
	}
	return int(last)
}

// TestWrites checks how many transactions each operation needs. A transaction is at least two writes with a flush, which wear out flash
// memory. An operation that only reads must not need a transaction.
func TestWrites(t *testing.T) {
	s := newService(t, nil)
	hub := newServer(t, false)
	img := small(t) // has two layers
	hub.push(t, "demo:1", img)
	s.c.CertsDir = plainDir(t, hub.URL)
	data := dockerArchive(t, map[string]v1.Image{"demo:1": img})
	spec := &api.ImageSpec{Image: "demo:1"}
	for _, c := range []struct {
		what string
		most int
		do   func() error
	}{
		{"import", 14, func() error { _, err := importers["file"](t, s, data); return err }},
		{"import again", 3, func() error { _, err := importers["file"](t, s, data); return err }},
		{"pull of the same layers", 8, func() error { _, err := pull(t.Context(), s, "registry.example/demo:1", nil); return err }},
		{"pull of an existing image", 0, func() error { _, err := pull(t.Context(), s, "registry.example/demo:1", nil); return err }},
		{"status", 0, func() error {
			_, err := s.ImageStatus(t.Context(), &api.ImageStatusRequest{Image: spec, Verbose: true})
			return err
		}},
		{"list", 0, func() error { _, err := s.ListImages(t.Context(), nil); return err }},
		{"usage", 0, func() error { _, err := s.ImageFsInfo(t.Context(), nil); return err }},
		{"sweep", 0, func() error { return s.sweepLeases(withNamespace(t.Context()), time.Now()) }},
		{"remove", 5, func() error { _, err := s.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: spec}); return err }},
	} {
		before := transactions(t, s)
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if n := transactions(t, s) - before; n > c.most {
			t.Errorf("%s: %d transactions, at most %d are needed", c.what, n, c.most)
		}
	}
	u, err := s.ImageFsInfo(t.Context(), nil)
	if err != nil || u.ImageFilesystems[0].UsedBytes.Value != 0 {
		t.Errorf("usage without images: %v, %v", u, err)
	}
}
