package ctrd

import (
	"context"
	"io/fs"
	"os"

	"github.com/islet-edge/islet/internal/readonly"
	"github.com/islet-edge/islet/runtime/cgroup"
)

// A disk can fail in one place: a file or a directory cannot be read (see readonly.Fault) and
// cannot be removed either. What is there is left out and reported. Its container is ended, and
// its pod is started again as after any loss; all others are taken over.

// readable takes what could be read of a directory.
func (r *Runtime) readable(entries []fs.DirEntry, err error) ([]fs.DirEntry, error) {
	if readonly.Fault(err) {
		r.log.Error("a part of a directory cannot be read from the disk: what is in it is not taken over", "read", len(entries), "error", err)
		return entries, nil
	}
	return entries, err
}

// sweepContainers removes the directories of containers that are not known. What of such a one
// still runs is killed: without its record nobody else would end it.
func (r *Runtime) sweepContainers(ctx context.Context, held map[string]adopted) {
	entries, err := os.ReadDir(r.dirs.containers)
	if err != nil {
		r.log.Error("directories of containers that are gone cannot be looked for", "error", err)
	}
	for _, e := range entries {
		id := e.Name()
		if r.containers[id] != nil {
			continue
		}
		if _, ended := held[id]; !ended {
			if err := cgroup.KillNamed(ctx, id, "islet-"+id+".scope"); err != nil {
				r.log.Error("a container without a readable record was not killed", "container", id, "error", err)
			}
		}
		if err := r.removeContainerDir(id); err != nil {
			r.occupied[id] = true
			r.log.Error("the directory of a container without a readable record cannot be removed; the next start of the agent tries again", "container", id, "error", err)
		}
	}
}

// freeID returns id, or the ID that replaces it if the disk neither reads nor removes the record
// of a former sandbox or container of that ID. The replacement is the same after a restart.
func (r *Runtime) freeID(id string) string {
	for r.occupied[id] {
		id = hash("instead of", id)
	}
	return id
}
