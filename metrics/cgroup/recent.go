package cgroup

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Recent reads each cgroup once for all callers within a short time: a scrape of several pages, the
// calls of the CRI and the eviction thresholds share one reading. Nothing is read without a caller.
// Readings are kept for callers that come again soon, such as scrapers, so that only changes are
// read. Its methods are safe for concurrent use.
type Recent struct {
	Reader
	age time.Duration

	turns atomic.Uint64 // incremented when a reading begins and ends, which orders the readings

	mu     sync.Mutex
	known  map[string]*kept
	forget *time.Timer
}

// keep is how long a reading is kept after its last use. It is longer than common scrape intervals.
const keep = 2 * time.Minute

// A Reading is a reading of a cgroup and the time for which it was last confirmed. Several callers
// share the readings, so none of them sees every reading. They can compare turns to find out
// whether anything has happened between two readings.
type Reading struct {
	*Details // immutable
	At       time.Time
	Ran      uint64 // the turn in which it was first seen; if it is the same as before, no process of it has run since
	changed  uint64 // the turn in which any figure last changed, including those that change while no process runs
	seen     uint64 // the turn in which it was last checked
}

// holds reports whether something below this cgroup that was checked in the given turn is still
// unchanged: the kernel adds the usage of children to their parents.
func (r Reading) holds(turn uint64) bool { return r.changed > 0 && turn > r.changed }

// Longer returns the one of two readings, of a cgroup and of one of its descendants, that has been
// unchanged for longer.
func (r Reading) Longer(below Reading) Reading {
	if r.changed > 0 && r.changed <= below.changed {
		return r
	}
	return below
}

// kept is a stored reading of a cgroup.
type kept struct {
	Reading
	children []string // their paths
	links    uint64   // link count of the directory when children was read
	listed   uint64   // the turn in which children was last checked
}

// NewRecent returns a Recent that reads with r and returns a reading again until it is older than
// age.
func NewRecent(r Reader, age time.Duration) *Recent { return &Recent{Reader: r, age: age} }

// ReadDetails is Reader.ReadDetails, with a reading that is at most age old.
func (r *Recent) ReadDetails(path string) (Details, error) {
	now, err := r.Look(path)
	d := *now.Details
	d.At = now.At
	return d, err
}

// Look is ReadDetails without a copy. With an error it also returns the Details that could be read.
func (r *Recent) Look(path string) (Reading, error) {
	before, known := r.find(path)
	if known && time.Since(before.At) < r.age {
		return before.Reading, nil
	}
	now := Reading{At: time.Now(), seen: r.turns.Add(1)}
	quiet, err := false, error(nil)
	if known {
		now.Details, quiet, err = r.Reader.readAfter(before.Details, path)
	} else {
		now.Details, err = r.Reader.readAll(path, nil)
	}
	now.Ran = r.turns.Add(1)
	now.changed = now.Ran
	if quiet {
		now.Ran = before.Ran
	}
	if known && now.Details == before.Details {
		now.changed = before.changed
	}
	if err != nil {
		return now, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[string]*kept{}
	}
	if k := r.known[path]; k != nil {
		k.Reading = now
	} else {
		r.known[path] = &kept{Reading: now}
	}
	if r.forget == nil {
		r.forget = time.AfterFunc(keep, r.drop)
	}
	return now, nil
}

// Unchanged returns the stored reading of a cgroup, as of the time of above, which is a reading of
// an ancestor. ok is false if the ancestor has changed since, so that the cgroup has to be read.
func (r *Recent) Unchanged(path string, above Reading) (Reading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[path]
	if k == nil || k.id == 0 || !above.holds(k.seen) || above.At.Sub(k.all) >= quietFor(path) {
		return Reading{}, false
	}
	if k.At.Before(above.At) {
		k.At = above.At
	}
	return k.Reading, true
}

// Listed returns the stored paths of a cgroup's direct children. ok is false if there are none
// stored, or if above, a reading of the cgroup or an ancestor, has changed since.
func (r *Recent) Listed(path string, above Reading) ([]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[path]
	if k == nil || k.links <= 1 || !above.holds(k.listed) {
		return nil, false
	}
	return k.children, true
}

// find returns the stored reading of a cgroup.
func (r *Recent) find(path string) (kept, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[path]; k != nil {
		return *k, true
	}
	return kept{}, false
}

// Forget discards the reading of a cgroup whose limits were changed, so that it is read completely
// the next time.
func (r *Recent) Forget(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, path)
}

// Children returns the sorted paths of a cgroup's direct children, which the caller must not
// change. A stored list is returned while the number of children stays the same. A caller that
// finds a child missing calls Forget and Children again.
func (r *Recent) Children(path string) ([]string, error) {
	turn, links := r.turns.Add(1), links(r.dir("memory", path))
	if list, ok := r.storedChildren(path, links, turn); ok {
		return list, nil
	}
	list, err := r.Reader.Children(path)
	if err != nil {
		return nil, err
	}
	slices.Sort(list)
	for i, name := range list {
		list[i] = strings.TrimSuffix(path, "/") + "/" + name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[path]; k != nil {
		k.children, k.links, k.listed = list, links, turn
	}
	return list, nil
}

// storedChildren returns the stored children of a cgroup if their number is unchanged.
func (r *Recent) storedChildren(path string, links, turn uint64) ([]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[path]
	if k == nil || links <= 1 || k.links != links { // 1: the file system does not count links
		return nil, false
	}
	k.listed = turn
	return k.children, true
}

// drop removes readings that were not used recently. It is called again while readings are left.
func (r *Recent) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, d := range r.known {
		if time.Since(d.At) >= keep {
			delete(r.known, path)
		}
	}
	r.forget = nil
	if len(r.known) == 0 {
		r.known = nil
		return
	}
	r.forget = time.AfterFunc(keep, r.drop)
}

// Read is Reader.Read, with a reading that is at most age old.
func (r *Recent) Read(path string) (Figures, error) {
	now, err := r.Look(path)
	f := now.Figures
	f.At = now.At
	return f, err
}
