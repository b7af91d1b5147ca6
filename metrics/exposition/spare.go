package exposition

import (
	"sync"
	"time"
)

// spareTime is the time for which an unused object is kept. It is longer than common scrape intervals. A sync.Pool is not used, because it
// would release the object after two garbage collections, and would keep an object for each core.
const spareTime = 2 * time.Minute

// A spareObject keeps an object between two scrapes, so that the next page can reuse the memory of the object.
type spareObject[T any] struct {
	mu           sync.Mutex
	object       *T          // nil while the object is in use, and before the first put
	releaseTimer *time.Timer // calls release; nil before the first put
}

// get returns the stored object, or a new object if none is stored.
func (s *spareObject[T]) get() *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.object == nil {
		return new(T)
	}
	one := s.object
	s.object = nil
	return one
}

// put stores an object, which the next call of get returns.
func (s *spareObject[T]) put(one *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object = one
	if s.releaseTimer == nil {
		s.releaseTimer = time.AfterFunc(spareTime, s.release)
	} else {
		s.releaseTimer.Reset(spareTime)
	}
}

// release drops the object, because it was not used for spareTime.
func (s *spareObject[T]) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object = nil
}
