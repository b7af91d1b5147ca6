package ctrd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"path/filepath"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/fusetest"
	"github.com/islet-edge/islet/runtime/crisuite"
	"github.com/islet-edge/islet/runtime/daemon"
)

// TestStartDuringRemoval checks pods that start and end while the removal of another image does not end: the image's files contain a mount
// that does not respond.
func TestStartDuringRemoval(t *testing.T) {
	n := newNode(t, 64)
	if n.daemon.Snapshotter() != daemon.Overlay {
		t.Skip("needs overlayfs")
	}
	archive := crisuite.ConfiguredImage(t, programs.prog, "removed", nil,
		crisuite.Entry{Header: tar.Header{Name: "silent/", Mode: 0o755, Typeflag: tar.TypeDir}})
	if _, err := n.images.ImportArchive(t.Context(), bytes.NewReader(archive), "removed.tar", nil); err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(n.dir, "containerd", daemon.Overlay, "snapshots/*/fs/silent"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%v, %v", dirs, err)
	}
	end := fusetest.MountSilent(t, dirs[0])
	ref := &api.ImageSpec{Image: crisuite.HostileRef("removed")}
	removed := make(chan error, 1)
	go func() {
		_, err := n.images.RemoveImage(context.Background(), &api.RemoveImageRequest{Image: ref})
		removed <- err
	}()
	eventually(t, "the image's name is removed", func() bool {
		st, err := n.images.ImageStatus(t.Context(), &api.ImageStatusRequest{Image: ref})
		return err == nil && st.Image == nil
	})
	for i := range 2 {
		pod, id := n.runPod(t, i, "ignore")
		if n.pid(t, id) == 0 {
			t.Error("it does not run")
		}
		if _, err := n.RemovePodSandbox(t.Context(), &api.RemovePodSandboxRequest{PodSandboxId: pod}); err != nil {
			t.Error(err)
		}
	}
	fusetest.CheckBlocked(t, removed)
	end()
	if err := <-removed; err != nil {
		t.Error(err)
	}
}
