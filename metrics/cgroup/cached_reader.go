package cgroup

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// CachedReader reads cgroups and caches the readings. Several callers within a short time share one reading of a cgroup. The callers are
// scrapes of several pages, the CRI and the eviction thresholds. CachedReader reads cgroups only during a call. It keeps the readings for
// some time, so that the next scrape only has to check idle cgroups for changes. Its methods are safe for concurrent use.
type CachedReader struct {
	Reader
	age time.Duration

	turns atomic.Uint64 // the current turn; it is incremented when a reading begins and when it ends

	mu          sync.Mutex
	stored      map[string]*storedReading
	forgetTimer *time.Timer
}

// keepTime is the time for which a reading is kept after its last use. It is longer than common
// scrape intervals.
const keepTime = 2 * time.Minute

// A Reading contains the figures of a cgroup at one time. It also contains the turns at which the figures last changed and were last
// checked. A turn is a number that increases with each reading of any cgroup. Several callers share the readings, so a caller does not get
// every reading. By comparing turns, a caller detects whether a figure has changed between two readings.
type Reading struct {
	*Details  // immutable
	At        time.Time
	UsageTurn uint64 // the turn in which this CPU and memory usage was first read; the same turn in two readings: no process has run
	changed   uint64 // the turn of the last change of any figure, including figures that change while no process runs
	seen      uint64 // the turn of the last check
}

// provesUnchanged reports whether no descendant of the cgroup can have changed since the given turn. The kernel adds the usage of a cgroup
// to the usage of its parents, so a change of a descendant would have changed this reading, too.
func (r Reading) provesUnchanged(turn uint64) bool { return r.changed > 0 && turn > r.changed }

// Oldest compares the reading of a cgroup with the reading of a descendant. It returns the reading that has been unchanged for a longer
// time.
func (r Reading) Oldest(descendant Reading) Reading {
	if r.changed > 0 && r.changed <= descendant.changed {
		return r
	}
	return descendant
}

// storedReading is the cache entry of a cgroup: the last reading and the list of its children.
type storedReading struct {
	Reading
	children []string // paths of the children
	links    uint64   // link count of the directory when the children were read
	listed   uint64   // the turn in which the children were last checked
}

// NewRecent returns a CachedReader that caches the readings of a Reader. It never returns a reading that is older than the maximum age.
func NewRecent(r Reader, age time.Duration) *CachedReader { return &CachedReader{Reader: r, age: age} }

// ReadDetails is like Reader.ReadDetails. It may return a cached reading.
func (r *CachedReader) ReadDetails(path string) (Details, error) {
	now, err := r.ReadShared(path)
	d := *now.Details
	d.At = now.At
	return d, err
}

// ReadShared is like ReadDetails, but it does not copy the Details. After an error, it also returns the Details that could be read.
func (r *CachedReader) ReadShared(path string) (Reading, error) {
	last, known := r.findStored(path)
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
	now.UsageTurn = r.turns.Add(1)
	now.changed = now.UsageTurn
	if quiet {
		now.UsageTurn = last.UsageTurn
	}
	if known && now.Details == last.Details {
		now.changed = last.changed
	}
	if err != nil {
		return now, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stored == nil {
		r.stored = map[string]*storedReading{}
	}
	if k := r.stored[path]; k != nil {
		k.Reading = now
	} else {
		r.stored[path] = &storedReading{Reading: now}
	}
	if r.forgetTimer == nil {
		r.forgetTimer = time.AfterFunc(keepTime, r.dropUnused)
	}
	return now, nil
}

// UnchangedReading returns the cached reading of a cgroup if a newer reading of an ancestor proves that the cgroup has not changed. If the
// second result is false, the cgroup must be read.
func (r *CachedReader) UnchangedReading(path string, ancestor Reading) (Reading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.stored[path]
	if k == nil || k.id == 0 || !ancestor.provesUnchanged(k.seen) || ancestor.At.Sub(k.all) >= maxIdleOf(path) {
		return Reading{}, false
	}
	if k.At.Before(ancestor.At) {
		k.At = ancestor.At
	}
	return k.Reading, true
}

// StoredChildren returns the cached paths of a cgroup's direct children. The caller passes a reading of the cgroup or of an ancestor.
// StoredChildren returns false if no paths are cached, or if this reading does not prove that they are still valid.
func (r *CachedReader) StoredChildren(path string, ancestor Reading) ([]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.stored[path]
	if k == nil || k.links <= 1 || !ancestor.provesUnchanged(k.listed) {
		return nil, false
	}
	return k.children, true
}

// findStored returns the cache entry of a cgroup. It returns false if there is none.
func (r *CachedReader) findStored(path string) (storedReading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.stored[path]; k != nil {
		return *k, true
	}
	return storedReading{}, false
}

// Forget discards the cache entry of a cgroup. Call it after a change of the cgroup's limits, so that they are read again.
func (r *CachedReader) Forget(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.stored, path)
}

// Children returns the sorted paths of a cgroup's direct children. The caller must not modify the list. While the number of children is the
// same, Children returns the cached list. If a child in the list does not exist any more, the caller should call Forget and then Children
// again.
func (r *CachedReader) Children(path string) ([]string, error) {
	turn, links := r.turns.Add(1), linkCount(r.cgroupDir("memory", path))
	if list, ok := r.checkChildren(path, links, turn); ok {
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
	if k := r.stored[path]; k != nil {
		k.children, k.links, k.listed = list, links, turn
	}
	return list, nil
}

// checkChildren returns the cached children of a cgroup. It returns false if the number of children has changed.
func (r *CachedReader) checkChildren(path string, links, turn uint64) ([]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.stored[path]
	if k == nil || links <= 1 || k.links != links { // a link count of 1 means that the file system does not count links
		return nil, false
	}
	k.listed = turn
	return k.children, true
}

// dropUnused removes readings that were not used recently. If readings are left, it schedules its next call.
func (r *CachedReader) dropUnused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, d := range r.stored {
		if time.Since(d.At) >= keepTime {
			delete(r.stored, path)
		}
	}
	r.forgetTimer = nil
	if len(r.stored) == 0 {
		r.stored = nil
		return
	}
	r.forgetTimer = time.AfterFunc(keepTime, r.dropUnused)
}

// Read is like Reader.Read. It may return a cached reading.
func (r *CachedReader) Read(path string) (Figures, error) {
	now, err := r.ReadShared(path)
	f := now.Figures
	f.At = now.At
	return f, err
}
