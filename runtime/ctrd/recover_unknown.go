package ctrd

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
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
	left := maps.Clone(alive)
	inUse := func(id string) bool {
		return r.containers[id] != nil || r.sandboxes[id] != nil && r.sandboxes[id].ready || alive[id]
	}
	containers := map[string]bool{r.dirs.state: true, r.dirs.bundles: true} // directories whose entries have the IDs of containers
	list := func(dir string) []os.DirEntry {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			r.log.Error("the remains of unknown containers could not be listed", "dir", dir, "error", err)
		}
		return entries
	}
	each := func(dir string, keep func(string) bool, remove func(ctx context.Context, id string) error) {
		var mu sync.Mutex
		var g errgroup.Group
		g.SetLimit(16) // those that wait in the kernel must not delay the start of the node one after the other
		for _, e := range list(dir) {
			if keep(e.Name()) {
				continue
			}
			g.Go(func() error {
				removed := r.removeWithin(ctx, filepath.Join(dir, e.Name()), remove)
				mu.Lock()
				defer mu.Unlock()
				if !removed && containers[dir] {
					left[e.Name()] = true
				}
				return nil
			})
		}
		g.Wait()
	}
	each(r.dirs.state, inUse, func(ctx context.Context, id string) error { return r.ociDelete(ctx, r.ociOfState(id), id) })
	for _, e := range list(r.dirs.handlers) {
		h, err := r.findHandler(e.Name())
		dir := filepath.Join(r.dirs.handlers, e.Name())
		containers[dir] = true
		each(dir, inUse, func(ctx context.Context, id string) error {
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
	each(r.dirs.bundles, inUse, func(ctx context.Context, id string) error {
		return errors.Join(r.endTasksOf(ctx, id), r.removeBundle(id))
	})
	r.sweepContainers(ctx, adopted, left)
	sandbox := func(id string) bool { return r.sandboxes[id] != nil && !r.sandboxes[id].rec.Stopped }
	each(r.dirs.pins, sandbox, func(_ context.Context, id string) error { return namespace.Unpin(filepath.Join(r.dirs.pins, id)) })
	each(r.dirs.files, sandbox, func(_ context.Context, id string) error { return r.removeSandboxFiles(id) })
	r.shims.endUnused()
	hasShim := func(name string) bool { return r.shims.hasShim(strings.TrimSuffix(name, ".log")) }
	each(r.dirs.sockets, hasShim, func(_ context.Context, name string) error {
		return mounts.RemoveAll(filepath.Join(r.dirs.sockets, name))
	})
	r.removeWithin(ctx, viewPrefix, func(ctx context.Context, _ string) error { return r.dropViews(ctx) })
}

// removeGrace is how long a removal may take to return when its context has ended. A system call may take longer, and then continues.
const removeGrace = time.Second

// removeWithin removes what has an ID, with a timeout. If that fails, it returns false, and the ID is occupied. The given function must not
// read the sandboxes and containers without the lock, because it may return after New.
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
func (r *Runtime) endUnknown(ctx context.Context, adopted map[string]adoptedContainer) (alive map[string]bool) {
	alive = map[string]bool{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(8)
	for id, h := range adopted {
		if r.containers[id] != nil || r.sandboxes[id] != nil && r.sandboxes[id].ready {
			continue
		}
		g.Go(func() error {
			ended := r.removeWithin(ctx, id, func(ctx context.Context, id string) error {
				err := h.client.Kill(ctx, wire.KillRequest{ID: id, Signal: 9, All: true})
				if err == nil {
					err = h.client.DeleteEnded(ctx, id)
				}
				return ignoreNotFound(err) // not found: the previous agent has already deleted it
			})
			mu.Lock()
			defer mu.Unlock()
			if !ended {
				alive[id] = true
			}
			return nil
		})
	}
	g.Wait()
	return alive
}
