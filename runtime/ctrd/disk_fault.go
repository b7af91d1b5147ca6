package ctrd

import (
	"context"
	"io/fs"
	"maps"
	"os"

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
func (r *Runtime) sweepContainers(ctx context.Context, adopted map[string]adoptedContainer, left map[string]bool) {
	entries, err := os.ReadDir(r.dirs.containers)
	if err != nil {
		r.log.Error("directories of removed containers could not be listed", "error", err)
	}
	kill := maps.Clone(left)
	for _, e := range entries {
		if _, ended := adopted[e.Name()]; !ended && r.containers[e.Name()] == nil {
			kill[e.Name()] = true
		}
	}
	for id := range kill {
		if err := cgroup.KillNamed(ctx, id, "islet-"+id+".scope"); err != nil {
			r.log.Error("a container without a readable record was not killed", "container", id, "error", err)
		}
	}
	for _, e := range entries {
		id := e.Name()
		if r.containers[id] != nil || r.occupied[id] {
			continue
		}
		r.removeWithin(ctx, r.containerDir(id), func(context.Context, string) error { return r.removeContainerDir(id) })
	}
}

// freeID returns id. If the disk can neither read nor remove the record of an earlier sandbox or
// container with that ID, it returns a replacement, which is the same after a restart.
func (r *Runtime) freeID(id string) string {
	for r.occupied[id] {
		id = hashParts("instead of", id)
	}
	return id
}
