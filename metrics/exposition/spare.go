package exposition

import (
	"sync"
	"time"
)

// keepSpare is how long unused memory is kept. It is longer than common scrape intervals. A
// sync.Pool would lose the memory at every second garbage collection, and has one per core.
const keepSpare = 2 * time.Minute

// A spare keeps the memory of a page for the next one.
type spare[T any] struct {
	mu     sync.Mutex
	one    *T          // nil: in use, or none
	forget *time.Timer // calls drop; nil until put is called
}

// get returns the kept memory, or new memory.
func (s *spare[T]) get() *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.one == nil {
		return new(T)
	}
	one := s.one
	s.one = nil
	return one
}

// put keeps memory for the next get.
func (s *spare[T]) put(one *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.one = one
	if s.forget == nil {
		s.forget = time.AfterFunc(keepSpare, s.drop)
	} else {
		s.forget.Reset(keepSpare)
	}
}

// drop releases memory that was not used for keepSpare.
func (s *spare[T]) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.one = nil
}
