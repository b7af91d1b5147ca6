package dirty

import (
	"maps"
	"slices"
	"sync"
)

// A Set is a set of keys that changed. It is safe for concurrent use. The function New creates a
// Set.
type Set[K comparable] struct {
	wake chan struct{} // capacity 1; contains a value while the set is not empty

	mu   sync.Mutex
	keys map[K]struct{}
}

// New returns an empty set.
func New[K comparable]() *Set[K] {
	return &Set[K]{wake: make(chan struct{}, 1), keys: map[K]struct{}{}}
}

// Add adds k and wakes the reader. It never blocks.
func (s *Set[K]) Add(k K) {
	s.mu.Lock()
	s.keys[k] = struct{}{}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Wake returns a channel on which a value is sent after keys were added. Only one goroutine may
// receive from it.
func (s *Set[K]) Wake() <-chan struct{} { return s.wake }

// TakeAll empties the set and returns its keys in no particular order.
func (s *Set[K]) TakeAll() []K {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Collect(maps.Keys(s.keys))
	clear(s.keys)
	return keys
}
