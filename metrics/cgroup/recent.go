package cgroup

import (
	"sync"
	"time"
)

// Recent reads each cgroup once for all who ask within a short time: a scrape of several
// pages, the calls of the CRI and a look at thresholds share one reading. Nothing is read
// unless somebody asks, and nothing is kept after that time. Its methods may be called at
// once.
type Recent struct {
	Reader
	age time.Duration

	mu     sync.Mutex
	known  map[string]Details
	forget *time.Timer
}

// NewRecent reads by r; what it read is given again for as long as age.
func NewRecent(r Reader, age time.Duration) *Recent { return &Recent{Reader: r, age: age} }

// ReadDetails is Reader.ReadDetails, at most as old as the age.
func (r *Recent) ReadDetails(path string) (Details, error) {
	r.mu.Lock()
	d, ok := r.known[path]
	r.mu.Unlock()
	if ok && time.Since(d.At) < r.age {
		return d, nil
	}
	d, err := r.Reader.ReadDetails(path)
	if err != nil {
		return d, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[string]Details{}
	}
	r.known[path] = d
	if r.forget == nil {
		r.forget = time.AfterFunc(2*r.age, r.drop)
	}
	return d, nil
}

// drop forgets what is too old; it is called again while something is left.
func (r *Recent) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, d := range r.known {
		if time.Since(d.At) >= r.age {
			delete(r.known, path)
		}
	}
	r.forget = nil
	if len(r.known) == 0 {
		r.known = nil
		return
	}
	r.forget = time.AfterFunc(2*r.age, r.drop)
}

// Read is Reader.Read, at most as old as the age.
func (r *Recent) Read(path string) (Figures, error) {
	d, err := r.ReadDetails(path)
	return d.Figures, err
}
