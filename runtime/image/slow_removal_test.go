package image

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/fusetest"
	"github.com/islet-edge/islet/runtime/daemon"
)

// blockRemoval imports an image whose files contain a mount that does not respond, and removes it in a goroutine. It returns when the image
// has no name any more: the removal of its files does not end before the function end is called.
func blockRemoval(t *testing.T, s *Service) (cancel func(), removed <-chan error, end func()) {
	t.Helper()
	if s.c.Snapshotter != daemon.Overlay {
		t.Skip("needs overlayfs")
	}
	data := ociArchive(t, func(p layout.Path) error { return p.AppendImage(small(t), named1("removed:1")) })
	if _, err := importers["file"](t, s, data); err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(s.c.Root, daemon.Overlay, "snapshots/*/fs/etc"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%v, %v", dirs, err)
	}
	end = fusetest.MountSilent(t, dirs[0])
	ctx, cancel := context.WithCancel(t.Context())
	result, spec := make(chan error, 1), &api.ImageSpec{Image: "removed:1"}
	go func() {
		_, err := s.RemoveImage(ctx, &api.RemoveImageRequest{Image: spec})
		result <- err
	}()
	for {
		if st, err := s.ImageStatus(t.Context(), &api.ImageStatusRequest{Image: spec}); err != nil {
			t.Fatal(err)
		} else if st.Image == nil {
			return cancel, result, end
		}
	}
}

// TestSlowRemoval checks the removal of an image whose files cannot be removed before its context ends. The image is removed nevertheless:
// the removal is successful, and OnRemove is called.
func TestSlowRemoval(t *testing.T) {
	removals := 0
	s := newService(t, func(c *Config) { c.OnRemove = func() { removals++ } })
	cancel, removed, end := blockRemoval(t, s)
	fusetest.CheckBlocked(t, removed)
	cancel()
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if removals != 1 {
		t.Errorf("OnRemove was called %d times", removals)
	}
	end()
}

// TestPullDuringRemoval checks a pull and a stopped pull while the removal of another image's files is blocked. Neither waits for the
// removal.
func TestPullDuringRemoval(t *testing.T) {
	s := newService(t, nil)
	hub := newServer(t, false)
	hub.push(t, "demo:1", imageOf(t, "", layerOf(t, file{name: "other", body: "other"})))
	s.c.CertsDir = plainDir(t, hub.URL)
	_, removed, end := blockRemoval(t, s)
	if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err != nil {
		t.Error(err)
	}
	_, stop, err := s.pullLease(withNamespace(t.Context()), "registry.example/stopped:1")
	if err != nil {
		t.Fatal(err)
	}
	stop(false)
	fusetest.CheckBlocked(t, removed)
	end()
	if err := <-removed; err != nil {
		t.Error(err)
	}
}

// TestCleaningEnds checks a pull that must wait until another pull has removed the unfinished work of an earlier process. The wait ends
// with the context of the waiting pull.
func TestCleaningEnds(t *testing.T) {
	s := newService(t, nil)
	if !s.leases.cleaning.TryAcquire(1) {
		t.Fatal("it is in use")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.pullLease(withNamespace(ctx), "registry.example/demo:1"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
