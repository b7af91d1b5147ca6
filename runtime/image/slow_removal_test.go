package image

import (
	"context"
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
	select {
	case err := <-removed:
		t.Fatalf("the removal was not blocked: %v", err)
	default:
	}
	cancel()
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if removals != 1 {
		t.Errorf("OnRemove was called %d times", removals)
	}
	end()
}
