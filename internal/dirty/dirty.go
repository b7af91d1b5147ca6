package dirty

import (
	"maps"
	"slices"
	"sync"
)

// A Set is safe for concurrent use. New makes one.
type Set[K comparable] struct {
	wake chan struct{} // capacity 1: something is in it

	mu  sync.Mutex
	all map[K]struct{}
}

// New returns an empty set.
func New[K comparable]() *Set[K] {
	return &Set[K]{wake: make(chan struct{}, 1), all: map[K]struct{}{}}
}

// Add marks k. It never blocks.
func (s *Set[K]) Add(k K) {
	s.mu.Lock()
	s.all[k] = struct{}{}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Wake receives once something was added since the last receipt. It is for one reader.
func (s *Set[K]) Wake() <-chan struct{} { return s.wake }

// Take empties the set and returns what was in it, in no order.
func (s *Set[K]) Take() []K {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Keys(s.all))
	clear(s.all)
	return all
}
