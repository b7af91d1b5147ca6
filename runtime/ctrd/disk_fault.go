package ctrd

import (
	"context"
	"io/fs"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/internal/readonly"
	"github.com/islet-edge/islet/runtime/cgroup"
)

// A disk can fail partially: a file or a directory can then neither be read (see readonly.IsDiskFault)
// nor be removed. Entries that cannot be read are logged and skipped. A container whose record
// cannot be read is killed, and its pod is started again, as after any other loss of a record. All
// other containers are taken over.

// readablePart returns the entries that could be read from a directory. It logs an error of the
// disk and returns any other error.
func (r *Runtime) readablePart(entries []fs.DirEntry, err error) ([]fs.DirEntry, error) {
	if readonly.IsDiskFault(err) {
		r.log.Error("only a part of a directory could be read from the disk: the missing entries are not taken over",
			"read", len(entries), "error", err)
		return entries, nil
	}
	return entries, err
}

// sweepContainers kills the processes of containers without a readable record, unless their shim has ended them, and then removes the
// directories of these containers. It also kills the processes of the containers in left, which are unknown and could not be deleted.
// Nothing else would end these processes.
func (r *Runtime) sweepContainers(ctx context.Context, adopted map[string]adoptedContainer, left []string) {
	kill := map[string]bool{}
	for _, id := range left {
		kill[id] = true
	}
	var paths []string
	for _, id := range r.listRemains(r.dirs.containers) {
		if r.containers[id] != nil {
			continue
		}
		if _, ended := adopted[id]; !ended {
			kill[id] = true
		}
		if !r.occupied[id] {
			paths = append(paths, r.containerDir(id))
		}
	}
	var g errgroup.Group
	g.SetLimit(maxRemovals)
	for id := range kill {
		g.Go(func() error {
			if err := cgroup.KillNamed(ctx, id, "islet-"+id+".scope"); err != nil {
				r.log.Error("a container without a readable record was not killed", "container", id, "error", err)
			}
			return nil
		})
	}
	g.Wait()
	r.removeAll(ctx, paths, func(_ context.Context, id string) error { return r.removeContainerDir(id) })
}

// freeID returns id. If the disk can neither read nor remove the record of an earlier sandbox or
// container with that ID, it returns a replacement, which is the same after a restart.
func (r *Runtime) freeID(id string) string {
	for r.occupied[id] {
		id = hashParts("instead of", id)
	}
	return id
}
