package cgroup

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Recent reads each cgroup once for all who ask within a short time: a scrape of several
// pages, the calls of the CRI and a look at thresholds share one reading. Nothing is read
// unless somebody asks. What was read is kept for who asks again soon, as a scraper does, to
// read only what has changed. Its methods may be called at once.
type Recent struct {
	Reader
	age time.Duration

	turns atomic.Uint64 // how often a reading has begun or ended, so that one is before another

	mu     sync.Mutex
	known  map[string]*kept
	forget *time.Timer
}

// keep is how long what was read is kept after it was last asked for: longer than scrapers
// commonly wait.
const keep = 2 * time.Minute

// A Reading is what was read of a cgroup, and when it was last seen to be so. Several ask, so that
// one of them does not see each: what has happened between two readings shows in their turns.
type Reading struct {
	*Details // nobody changes them
	At       time.Time
	Ran      uint64 // the turn in which it was first seen as it is; the same as before: no process of it has run since
	changed  uint64 // the same of everything, also of what changes while no process runs
	seen     uint64 // the turn in which it was last looked at
}

// holds reports whether what was looked at in a turn, below a cgroup of this reading, is so
// still: the kernel adds up in a cgroup what runs below it.
func (r Reading) holds(turn uint64) bool { return r.changed > 0 && turn > r.changed }

// Longer is the one of two readings, of a cgroup and of one below it, that has been so for longer.
func (r Reading) Longer(below Reading) Reading {
	if r.changed > 0 && r.changed <= below.changed {
		return r
	}
	return below
}

// kept is what was read of a cgroup.
type kept struct {
	Reading
	children []string // their paths
	links    uint64   // of the directory when children was read
	listed   uint64   // the turn in which it was last looked whether there are others
}

// NewRecent reads by r; what it read is given again for as long as age.
func NewRecent(r Reader, age time.Duration) *Recent { return &Recent{Reader: r, age: age} }

// ReadDetails is Reader.ReadDetails, at most as old as the age.
func (r *Recent) ReadDetails(path string) (Details, error) {
	now, err := r.Look(path)
	d := *now.Details
	d.At = now.At
	return d, err
}

// Look is ReadDetails without a copy. With an error there are Details too, of what could be read.
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

// Unchanged gives what was read of a cgroup before, as of now, by a reading of one above it. False:
// something above it has changed since, so that it has to be read.
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

// Listed gives the paths of the cgroups right below one as they were listed before; false: they
// were not, or something has changed since in above, which is the one or above it.
func (r *Recent) Listed(path string, above Reading) ([]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[path]
	if k == nil || k.links <= 1 || !above.holds(k.listed) {
		return nil, false
	}
	return k.children, true
}

// find gives what is known of a cgroup.
func (r *Recent) find(path string) (kept, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.known[path]; k != nil {
		return *k, true
	}
	return kept{}, false
}

// Forget has a cgroup read as a whole the next time: its limits were changed.
func (r *Recent) Forget(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, path)
}

// Children are the paths of the cgroups right below one, in order; nobody changes it. A list is taken again while there are as many cgroups as when
// it was read; who finds that one of them is gone calls Forget, and this again.
func (r *Recent) Children(path string) ([]string, error) {
	turn, links := r.turns.Add(1), links(r.dir("memory", path))
	if list, ok := r.asMany(path, links, turn); ok {
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

// asMany gives the children of a cgroup as they were listed, if there are as many.
func (r *Recent) asMany(path string, links, turn uint64) ([]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[path]
	if k == nil || links <= 1 || k.links != links { // 1: of a file system that does not count
		return nil, false
	}
	k.listed = turn
	return k.children, true
}

// drop forgets what nobody asked for lately; it is called again while something is left.
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

// Read is Reader.Read, at most as old as the age.
func (r *Recent) Read(path string) (Figures, error) {
	now, err := r.Look(path)
	f := now.Figures
	f.At = now.At
	return f, err
}
