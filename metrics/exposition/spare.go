package exposition

import (
	"sync"
	"time"
)

// spareTime is the time for which an unused object is kept. It is longer than common scrape intervals. A sync.Pool
// would drop the object at every second garbage collection, and keep one object per core.
const spareTime = 2 * time.Minute

// A spare keeps an object with its memory, so that the next page can reuse it.
type spare[T any] struct {
	mu     sync.Mutex
	one    *T          // nil if it is in use, or if there is none
	forget *time.Timer // timer that calls drop; nil before the first put
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
		s.forget = time.AfterFunc(spareTime, s.drop)
	} else {
		s.forget.Reset(spareTime)
	}
}

// drop releases the object, because it was not used for spareTime.
func (s *spare[T]) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.one = nil
}
