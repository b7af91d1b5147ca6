package exposition

import (
	"sync"
	"time"
)

// spareTime is the time for which an unused object is kept. It is longer than common scrape intervals. A sync.Pool
// would release the object at every second garbage collection, and would keep an object for each core.
const spareTime = 2 * time.Minute

// A spareObject keeps an unused object with its memory, so that the next page can reuse it.
type spareObject[T any] struct {
	mu     sync.Mutex
	object *T          // nil while the object is in use, and before the first put
	forget *time.Timer // calls release; nil before the first put
}

// get returns the kept object, or a new object if there is none.
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

// put keeps an object for the next get.
func (s *spareObject[T]) put(one *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object = one
	if s.forget == nil {
		s.forget = time.AfterFunc(spareTime, s.release)
	} else {
		s.forget.Reset(spareTime)
	}
}

// release drops the object, because it was not used for spareTime.
func (s *spareObject[T]) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object = nil
}
