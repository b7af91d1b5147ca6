package ctrd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/namespace"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// removeUnknown removes everything that belongs to no known sandbox or container. Each removal has a timeout, because a process may wait in
// the kernel for a disk or a volume, and then does not end. A removal that fails is logged, and the next start repeats it. Until then the
// ID is occupied, and known pods run. The processes of a container that could not be removed are killed.
func (r *Runtime) removeUnknown(ctx context.Context, adopted map[string]adoptedContainer) {
	alive := r.endUnknown(ctx, adopted)
	kept := func(id string) bool { return r.isInUse(id) || slices.Contains(alive, id) }
	left := slices.Clone(alive)
	removeContainers := func(dir string, remove func(ctx context.Context, id string) error) {
		left = append(left, r.removeEach(ctx, dir, kept, remove)...)
	}
	removeContainers(r.dirs.state, func(ctx context.Context, id string) error { return r.ociDelete(ctx, r.ociOfState(id), id) })
	for _, name := range r.listRemains(r.dirs.handlers) {
		h, err := r.findHandler(name)
		dir := filepath.Join(r.dirs.handlers, name)
		removeContainers(dir, func(ctx context.Context, id string) error {
			path := filepath.Join(dir, id)
			if st, dir := os.Stat(path); dir != nil || !st.IsDir() {
				return nil // a file of the program itself
			}
			if err != nil { // its program is not installed; the processes end when the pod's cgroup is removed
				return mounts.RemoveAll(path)
			}
			return r.ociDelete(ctx, h.oci, id)
		})
	}
	removeContainers(r.dirs.bundles, func(ctx context.Context, id string) error {
		return errors.Join(r.endTasksOf(ctx, id), r.removeBundle(id))
	})
	r.sweepContainers(ctx, adopted, left)
	sandbox := func(id string) bool { return r.sandboxes[id] != nil && !r.sandboxes[id].rec.Stopped }
	r.removeEach(ctx, r.dirs.pins, sandbox, func(_ context.Context, id string) error {
		return namespace.Unpin(filepath.Join(r.dirs.pins, id))
	})
	r.removeEach(ctx, r.dirs.files, sandbox, func(_ context.Context, id string) error { return r.removeSandboxFiles(id) })
	r.shims.endUnused()
	hasShim := func(name string) bool { return r.shims.hasShim(strings.TrimSuffix(name, ".log")) }
	r.removeEach(ctx, r.dirs.sockets, hasShim, func(_ context.Context, name string) error {
		return mounts.RemoveAll(filepath.Join(r.dirs.sockets, name))
	})
	r.removeWithin(ctx, viewPrefix, func(ctx context.Context, _ string) error { return r.dropViews(ctx) })
}

// isInUse reports whether an ID belongs to a known container, or to the first container of a known sandbox that is ready.
func (r *Runtime) isInUse(id string) bool {
	return r.containers[id] != nil || r.sandboxes[id] != nil && r.sandboxes[id].ready
}

// listRemains returns the names of the entries of a directory.
func (r *Runtime) listRemains(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.log.Error("the remains of unknown containers could not be listed", "dir", dir, "error", err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// removeEach removes the entries of a directory, except those for which keep returns true. It returns the names of the entries that could
// not be removed.
func (r *Runtime) removeEach(
	ctx context.Context, dir string, keep func(id string) bool, remove func(ctx context.Context, id string) error,
) (left []string) {
	var paths []string
	for _, name := range r.listRemains(dir) {
		if !keep(name) {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return r.removeAll(ctx, paths, remove)
}

// maxRemovals is the maximum number of concurrent removals. If several of them wait in the kernel, their timeouts do not add up.
const maxRemovals = 16

// removeAll calls removeWithin for each path, and returns the IDs for which it failed.
func (r *Runtime) removeAll(ctx context.Context, paths []string, remove func(ctx context.Context, id string) error) (left []string) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(maxRemovals)
	for _, path := range paths {
		g.Go(func() error {
			if !r.removeWithin(ctx, path, remove) {
				mu.Lock()
				defer mu.Unlock()
				left = append(left, filepath.Base(path))
			}
			return nil
		})
	}
	g.Wait()
	return left
}

// removeGrace is how long a removal may take to return when its context has ended. A system call may take longer, and then continues.
const removeGrace = time.Second

// removeWithin calls a function that removes what is at a path. The last element of the path is the ID that the function gets. If the
// function fails, or does not return in time, removeWithin returns false, and the ID is occupied. The function may return after New, so it
// must not read the sandboxes and containers without the lock.
func (r *Runtime) removeWithin(ctx context.Context, path string, remove func(ctx context.Context, id string) error) bool {
	limited, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	id := filepath.Base(path)
	result := make(chan error, 1)
	go func() { result <- remove(limited, id) }()
	var err error
	select {
	case err = <-result:
	case <-limited.Done():
		select {
		case err = <-result:
		case <-time.After(removeGrace):
			err = limited.Err()
		}
	}
	if err == nil || ctx.Err() != nil {
		return true
	}
	r.log.Error("the remains of an unknown container could not be removed; the next start tries again", "path", path, "error", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.occupied[id] = true
	return false
}

// endUnknown ends the containers of the shims that belong to no known sandbox or container. It returns the IDs of those that did not end in
// time.
func (r *Runtime) endUnknown(ctx context.Context, adopted map[string]adoptedContainer) (alive []string) {
	var unknown []string
	for id := range adopted {
		if !r.isInUse(id) {
			unknown = append(unknown, id)
		}
	}
	return r.removeAll(ctx, unknown, func(ctx context.Context, id string) error {
		client := adopted[id].client
		err := client.Kill(ctx, wire.KillRequest{ID: id, Signal: 9, All: true})
		if err == nil {
			err = client.DeleteEnded(ctx, id)
		}
		return ignoreNotFound(err) // not found: the previous agent has already deleted it
	})
}
