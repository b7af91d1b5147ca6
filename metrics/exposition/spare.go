package exposition

import (
	"sync"
	"time"
)

// keepSpare is how long memory is kept that nobody uses: longer than scrapers commonly wait. A
// sync.Pool would lose it at each second collection, and has another of it for each core.
const keepSpare = 2 * time.Minute

// A spare is memory that was used for a page, for the next such page.
type spare[T any] struct {
	mu     sync.Mutex
	one    *T          // nil: it is in use, or there is none
	forget *time.Timer // calls drop; nil: none was given back yet
}

// get gives it, or new memory.
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

// put takes it back.
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

// drop forgets what nobody used for long.
func (s *spare[T]) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.one = nil
}
