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
	mu    sync.Mutex
	one   *T        // nil: it is in use, or there is none
	used  time.Time // when it was given back
	timed bool      // drop will be called
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
	s.one, s.used = one, time.Now()
	if !s.timed {
		s.timed = true
		time.AfterFunc(keepSpare, s.drop)
	}
}

// drop forgets what nobody used for long.
func (s *spare[T]) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := keepSpare - time.Since(s.used); s.one != nil && left > 0 {
		time.AfterFunc(left, s.drop)
		return
	}
	s.one, s.timed = nil, false
}
