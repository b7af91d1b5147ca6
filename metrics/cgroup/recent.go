package cgroup

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Recent reads each cgroup once for all callers within a short time. A scrape of several pages, calls of the CRI and
// the eviction thresholds share one reading. It reads nothing without a call. It keeps the readings for some time. At
// the next scrape, idle cgroups are only checked for changes. Its methods are safe for concurrent use.
type Recent struct {
	Reader
	age time.Duration

	turns atomic.Uint64 // the current turn; it is incremented when a reading begins and when it ends

	mu     sync.Mutex
	known  map[string]*kept
	forget *time.Timer
}

// keep is the time for which a reading is kept after its last use. It is longer than common scrape
// intervals.
const keep = 2 * time.Minute

// A Reading is a reading of a cgroup, with the turns of its last change and its last check. A turn is a number that
// increases with each reading of any cgroup. Several callers share the readings, so a caller does not see every
// reading. By comparing turns, a caller finds out whether anything has changed between two readings.
type Reading struct {
	*Details // immutable
	At       time.Time
	Ran      uint64 // the turn in which this usage was first seen; while it is the same, no process has run
	changed  uint64 // the turn in which any figure last changed, including figures that change while no process runs
	seen     uint64 // the turn of the last check
}

// provesUnchanged reports whether a descendant of this cgroup has not changed since it was checked in the given turn.
// The kernel adds the usage of a cgroup to that of its parents, so a change of the descendant would be visible here.
func (r Reading) provesUnchanged(turn uint64) bool { return r.changed > 0 && turn > r.changed }

// Longer returns the reading that has been unchanged for longer. below is a reading of a descendant.
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
	links    uint64   // link count of the directory when the children were read
	listed   uint64   // the turn in which the children were last checked
}

// NewRecent returns a Recent that reads with r. It returns the same reading again until the reading is
// older than age.
func NewRecent(r Reader, age time.Duration) *Recent { return &Recent{Reader: r, age: age} }

// ReadDetails is like Reader.ReadDetails. The reading is at most age old.
func (r *Recent) ReadDetails(path string) (Details, error) {
	now, err := r.Look(path)
	d := *now.Details
	d.At = now.At
	return d, err
}

// Look is like ReadDetails, but it does not copy the Details. If it returns an error, it also returns the
// Details that could be read.
func (r *Recent) Look(path string) (Reading, error) {
	last, known := r.find(path)
	if known && time.Since(last.At) < r.age {
		return last.Reading, nil
	}
	now := Reading{At: time.Now(), seen: r.turns.Add(1)}
	quiet, err := false, error(nil)
	if known {
		now.Details, quiet, err = r.Reader.readAfter(last.Details, path)
	} else {
		now.Details, err = r.Reader.readAll(path, nil)
	}
	now.Ran = r.turns.Add(1)
	now.changed = now.Ran
	if quiet {
		now.Ran = last.Ran
	}
	if known && now.Details == last.Details {
		now.changed = last.changed
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

// Unchanged returns the stored reading of a cgroup, if above, a newer reading of an ancestor, proves that it is still
// valid. Otherwise ok is false, and the cgroup must be read.
func (r *Recent) Unchanged(path string, above Reading) (Reading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[path]
	if k == nil || k.id == 0 || !above.provesUnchanged(k.seen) || above.At.Sub(k.all) >= quietFor(path) {
		return Reading{}, false
	}
	if k.At.Before(above.At) {
		k.At = above.At
	}
	return k.Reading, true
}

// Listed returns the stored paths of a cgroup's direct children. above is a reading of the cgroup or of an
// ancestor. ok is false if no paths are stored, or if above shows a change since then.
func (r *Recent) Listed(path string, above Reading) ([]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[path]
	if k == nil || k.links <= 1 || !above.provesUnchanged(k.listed) {
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

// Forget discards the reading of a cgroup. It must be called after a change of the cgroup's limits, so that
// they are read again.
func (r *Recent) Forget(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, path)
}

// Children returns the sorted paths of a cgroup's direct children. The caller must not modify the list. The stored
// list is returned while the number of children is the same. If a child does not exist, the caller should call Forget
// and then Children again.
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

// storedChildren returns the stored children of a cgroup. It returns false if their number has changed.
func (r *Recent) storedChildren(path string, links, turn uint64) ([]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[path]
	if k == nil || links <= 1 || k.links != links { // a link count of 1 means that the file system does not count links
		return nil, false
	}
	k.listed = turn
	return k.children, true
}

// drop removes readings that were not used recently. While readings are left, it schedules its next call.
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

// Read is like Reader.Read. The reading is at most age old.
func (r *Recent) Read(path string) (Figures, error) {
	now, err := r.Look(path)
	f := now.Figures
	f.At = now.At
	return f, err
}
