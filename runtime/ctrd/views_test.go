package ctrd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
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

// TestViewKeptDuringCreation checks the removal of the last other container of an image while a container is being created: it waits for a
// CDI specification that is a FIFO. The view of the image stays until the new container is removed, or its creation has failed.
func TestViewKeptDuringCreation(t *testing.T) {
	n := newNode(t, 64)
	ctx := t.Context()
	img, err := n.images.Resolve(ctx, crisuite.ImageRef)
	if err != nil {
		t.Fatal(err)
	}
	hasView := func() bool {
		t.Helper()
		sn := n.daemon.Client().SnapshotService(n.daemon.Snapshotter())
		_, err := sn.Stat(namespaces.WithNamespace(ctx, daemon.Namespace), "islet-view-"+img.ChainID)
		if err != nil && !errdefs.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	fifo := filepath.Join(n.cdi()[0], "slow.json")
	if err := os.MkdirAll(n.cdi()[0], 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pod, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: n.podConfig(0), RuntimeHandler: n.handler})
	if err != nil {
		t.Fatal(err)
	}
	for i, device := range []string{"known", "unknown"} {
		req := &api.CreateContainerRequest{PodSandboxId: pod.PodSandboxId, SandboxConfig: n.podConfig(0), Config: containerConfig(device, "ignore")}
		req.Config.CDIDevices = []*api.CDIDevice{{Name: "example.com/device=" + device}}
		_, other := n.runPod(t, i+1, "ignore")
		type result struct {
			id  string
			err error
		}
		created := make(chan result, 1)
		go func() {
			c, err := n.CreateContainer(context.Background(), req)
			created <- result{c.GetContainerId(), err}
		}()
		in, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits until CreateContainer opens the FIFO
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.RemoveContainer(ctx, &api.RemoveContainerRequest{ContainerId: other}); err != nil {
			t.Error(err)
		}
		if !hasView() {
			t.Error("the view of the image is gone")
		}
		_, err = in.WriteString(`{"cdiVersion":"0.5.0","kind":"example.com/device","devices":[{"name":"known","containerEdits":{"env":["A=b"]}}]}`)
		if err := errors.Join(err, in.Close()); err != nil {
			t.Fatal(err)
		}
		got := <-created
		if (got.err == nil) != (device == "known") {
			t.Errorf("%s: %v", device, got.err)
		}
		if got.err == nil {
			if !hasView() {
				t.Error("the view of the image is gone after the creation")
			}
			if _, err := n.RemoveContainer(ctx, &api.RemoveContainerRequest{ContainerId: got.id}); err != nil {
				t.Error(err)
			}
		}
		if hasView() {
			t.Errorf("%s: the view of the image is left", device)
		}
	}
}
