package cgroup

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Recent reads each cgroup once for all who ask within a short time: a scrape of several
// pages, the calls of the CRI and a look at thresholds share one reading. Nothing is read
// unless somebody asks. What was read is kept for who asks again soon, as a scraper does, to
// read only what has changed. Its methods may be called at once.
type Recent struct {
	Reader
	age time.Duration

	mu     sync.Mutex
	known  map[string]*kept
	forget *time.Timer
}

// keep is how long what was read is kept after it was last asked for: longer than scrapers
// commonly wait.
const keep = 2 * time.Minute

// A Reading is what was read of a cgroup, and when it was last seen to be so.
type Reading struct {
	*Details // nobody changes them
	At       time.Time
	Quiet    bool // no process of it has run since it was read before
	Still    bool // and nothing of those below has changed either: the kernel adds them up here
}

// kept is what was read of a cgroup.
type kept struct {
	Reading
	children []string // their paths
	links    uint64   // of the directory when children was read
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
	var now Reading
	var err error
	switch {
	case !known:
		now, err = r.Reader.readAll(path, nil)
	case time.Since(before.At) < r.age:
		return before.Reading, nil
	default:
		now, err = r.Reader.readAfter(before.Details, path)
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

// Unchanged gives what was read of a cgroup before, as of now: one above is Still. False: it has
// to be read.
func (r *Recent) Unchanged(path string, now time.Time) (Reading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[path]
	if k == nil || k.id == 0 || now.Sub(k.all) >= quietFor(path) {
		return Reading{}, false
	}
	k.At, k.Quiet, k.Still = now, true, true
	return k.Reading, true
}

// Listed gives the paths of the cgroups right below one as they were listed before; false: they were not.
func (r *Recent) Listed(path string) ([]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[path]
	if k == nil || k.links <= 1 {
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
	links := links(r.dir("memory", path))
	if k, ok := r.find(path); ok && links > 1 && k.links == links { // 1: of a file system that does not count
		return k.children, nil
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
		k.children, k.links = list, links
	}
	return list, nil
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
