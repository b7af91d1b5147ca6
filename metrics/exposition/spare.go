package exposition

import (
	"sync"
	"time"
)

// keepSpare is the time for which unused memory is kept. It is longer than common scrape intervals. A
// sync.Pool is not used, because it would drop the memory at every second garbage collection and keep one
// object per core.
const keepSpare = 2 * time.Minute

// A spare keeps an object with its memory, so that the next page can reuse it.
type spare[T any] struct {
	mu     sync.Mutex
	one    *T          // nil if it is in use, or if there is none
	forget *time.Timer // calls drop; nil until put is called
}

// get returns the kept object. If there is none, it returns a new one.
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

// put keeps an object for the next get.
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

// drop releases the object. It is called when the object has not been used for the time keepSpare.
func (s *spare[T]) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.one = nil
}
