package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"

	"github.com/islet-edge/islet/internal/fusetest"
)

// overlayConfig returns the configuration of a storage with overlayfs. It skips the test if overlayfs does not work.
func overlayConfig(t *testing.T) Config {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := t.TempDir()
	if err := overlayutils.Supported(root); err != nil {
		t.Skip("overlayfs does not work here:", err)
	}
	return Config{Root: root, Snapshotter: Overlay, Log: slog.New(slog.DiscardHandler)}
}

// TestSlowRemoval checks a collection whose removal of files does not end: the files contain a mount whose FUSE daemon never responds.
// Other snapshots are created and removed meanwhile, and the caller waits only until its context ends. When the removal continues, all
// files are removed.
func TestSlowRemoval(t *testing.T) {
	c := overlayConfig(t)
	ctx := namespaces.WithNamespace(t.Context(), Namespace)
	d := start(t, c)
	t.Cleanup(func() { d.Close() }) // when the mount has ended
	leased := func(name string) (context.Context, leases.Lease) {
		t.Helper()
		l, err := d.Client().LeasesService().Create(ctx, leases.WithID(name))
		if err != nil {
			t.Fatal(err)
		}
		return leases.WithLease(ctx, name), l
	}
	snaps := d.Client().SnapshotService(Overlay)
	dirs := func() []string { return entries(t, filepath.Join(c.Root, Overlay, "snapshots")) }
	with, lease := leased("slow")
	if _, err := snaps.Prepare(with, "slow", ""); err != nil {
		t.Fatal(err)
	}
	slow := filepath.Join(c.Root, Overlay, "snapshots", dirs()[0], "fs", "silent")
	if err := os.Mkdir(slow, 0o700); err != nil {
		t.Fatal(err)
	}
	end := fusetest.MountSilent(t, slow)

	collected := make(chan error, 1)
	go func() { collected <- d.Client().LeasesService().Delete(ctx, lease, leases.SynchronousDelete) }()
	for { // until the record is removed
		if _, err := snaps.Stat(ctx, "slow"); err != nil {
			break
		}
	}
	with, lease = leased("other")
	if _, err := snaps.Prepare(with, "other", ""); err != nil {
		t.Error(err)
	}
	if _, err := snaps.View(with, "view", ""); err != nil {
		t.Error(err)
	}
	if err := snaps.Remove(ctx, "view"); err != nil {
		t.Error(err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := d.collector.collectNow(cancelled); !errors.Is(err, errContinues) || !errors.Is(err, context.Canceled) {
		t.Errorf("collect now: %v", err)
	}
	fusetest.CheckBlocked(t, collected)
	end()
	if err := <-collected; err != nil {
		t.Error(err)
	}
	if err := d.Client().LeasesService().Delete(ctx, lease, leases.SynchronousDelete); err != nil {
		t.Error(err)
	}
	if left := dirs(); len(left) > 1 || len(left) == 1 && left[0] != "1" { // the directory with the mount cannot be removed
		t.Errorf("files are left: %v", left)
	}
}

// TestKilledRemoval checks the files of a snapshot whose removal was interrupted by the end of the process. The next collection that
// deletes a snapshot removes them.
func TestKilledRemoval(t *testing.T) {
	c := overlayConfig(t)
	ctx := namespaces.WithNamespace(t.Context(), Namespace)
	d := start(t, c)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(c.Root, Overlay, "snapshots", "7", "fs", "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	d = start(t, c)
	defer d.Close()
	lease, err := d.Client().LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Client().SnapshotService(Overlay).Prepare(leases.WithLease(ctx, lease.ID), "x", ""); err != nil {
		t.Fatal(err)
	}
	if err := d.Client().LeasesService().Delete(ctx, lease, leases.SynchronousDelete); err != nil {
		t.Fatal(err)
	}
	if left := entries(t, filepath.Join(c.Root, Overlay, "snapshots")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
}
