package image

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/daemon"
)

// newDaemon opens a storage that is closed when the test ends.
func newDaemon(tb testing.TB, dir string) *daemon.Daemon {
	tb.Helper()
	d := openDaemon(tb, dir)
	tb.Cleanup(func() { d.Close() })
	return d
}

// openDaemon opens a storage that the test must close.
func openDaemon(tb testing.TB, dir string) *daemon.Daemon {
	tb.Helper()
	d, err := daemon.Start(tb.Context(), daemon.Config{Root: dir, Log: logger(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func logger(tb testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(tb.Output(), nil))
}

// onSmallDisk mounts a file system with the given size in bytes. The file system is in memory, so a test does not wait for a disk.
func onSmallDisk(tb testing.TB, size int) string {
	tb.Helper()
	return onSmallDiskWith(tb, fmt.Sprintf("size=%d", size))
}

func onSmallDiskWith(tb testing.TB, options string) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// newService returns a Service with a new storage.
func newService(tb testing.TB, with func(*Config)) *Service {
	tb.Helper()
	dir := onSmallDisk(tb, 1<<30)
	return serviceOn(tb, newDaemon(tb, dir), dir, with)
}

func serviceOn(tb testing.TB, d *daemon.Daemon, dir string, with func(*Config)) *Service {
	tb.Helper()
	cfg := Config{Client: d.Client(), Root: dir, Snapshotter: d.Snapshotter(), Log: logger(tb)}
	if with != nil {
		with(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// collect runs the garbage collector and waits for it. A pull does not wait for it.
func collect(tb testing.TB, s *Service) {
	tb.Helper()
	if err := s.collectGarbage(withNamespace(context.Background())); err != nil {
		tb.Fatal(err)
	}
}

// left returns all image data in containerd's storage: records, leases, blobs, downloads and snapshots.
func left(tb testing.TB, s *Service) []string {
	tb.Helper()
	ctx := withNamespace(context.Background())
	var out []string
	check := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	imgs, err := s.c.Client.ImageService().List(ctx)
	check(err)
	for _, i := range imgs {
		out = append(out, "image "+i.Name)
	}
	ls, err := s.c.Client.LeasesService().List(ctx)
	check(err)
	for _, l := range ls {
		out = append(out, fmt.Sprintf("lease %s %v", l.ID, l.Labels))
	}
	check(s.c.Client.ContentStore().Walk(ctx, func(i content.Info) error {
		out = append(out, "blob "+i.Digest.String())
		return nil
	}))
	st, err := s.c.Client.ContentStore().ListStatuses(ctx)
	check(err)
	for _, i := range st {
		out = append(out, "download "+i.Ref)
	}
	check(s.snapshotter().Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		out = append(out, "snapshot "+i.Name)
		return nil
	}))
	return out
}
