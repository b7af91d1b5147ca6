package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"

	"github.com/islet-edge/islet/runtime/mounts"
)

// A leftoverRemover is a snapshotter that continues after a kill or a power cut. If the process dies while it creates a snapshot, a
// directory without a record remains, and its number is given to the next snapshot. Without this type, no snapshot could be created until
// the garbage collector removes another one.
type leftoverRemover struct {
	snapshots.Snapshotter
	dir string // the snapshotter's directory of snapshots
	mu  *sync.Mutex
}

// Prepare implements snapshots.Snapshotter.
func (s leftoverRemover) Prepare(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	return s.create(ctx, s.Snapshotter.Prepare, key, parent, opts)
}

// View implements snapshots.Snapshotter.
func (s leftoverRemover) View(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	return s.create(ctx, s.Snapshotter.View, key, parent, opts)
}

type createFunc func(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error)

func (s leftoverRemover) create(ctx context.Context, create createFunc, key, parent string, opts []snapshots.Opt) ([]mount.Mount, error) {
	ms, err := create(ctx, key, parent, opts...)
	if !errors.Is(err, fs.ErrExist) {
		return ms, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ms, err = create(ctx, key, parent, opts...); !errors.Is(err, fs.ErrExist) {
		return ms, err // another call has removed the directory
	}
	failed := s.Cleanup(ctx)
	if errdefs.IsNotFound(failed) { // the database has no snapshot yet
		failed = s.removeAll()
	}
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	return create(ctx, key, parent, opts...)
}

// removeAll removes all snapshots. There must be no records of them. It renames a directory before it removes the files, so that a new
// snapshot cannot take its place meanwhile.
func (s leftoverRemover) removeAll() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := strconv.ParseUint(e.Name(), 10, 64); err != nil {
			continue // a concurrent call creates it
		}
		from, to := filepath.Join(s.dir, e.Name()), filepath.Join(s.dir, "rm-"+e.Name())
		if err := errors.Join(mounts.RemoveAll(to), os.Rename(from, to), mounts.RemoveAll(to)); err != nil {
			return err
		}
	}
	return nil
}

// Cleanup removes the directories that have no record. It implements snapshots.Cleaner.
func (s leftoverRemover) Cleanup(ctx context.Context) error {
	if c, ok := s.Snapshotter.(snapshots.Cleaner); ok {
		return c.Cleanup(ctx)
	}
	return errdefs.ErrNotImplemented
}
