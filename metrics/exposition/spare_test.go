package exposition

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSpare: an object that is used regularly is kept. It is never given to two callers at once. An
// unused object is released.
func TestSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s spareObject[page]
		first := s.get()
		if s.get() == first {
			t.Error("two have the same")
		}
		s.put(first)
		for range 5 {
			time.Sleep(spareTime - time.Second) // of the bubble: nobody waits
			if s.get() != first {
				t.Fatal("what was used lately is gone")
			}
			s.put(first)
		}
		time.Sleep(2 * spareTime) // of the bubble
		s.mu.Lock()
		if s.object != nil {
			t.Error("it is kept")
		}
		s.mu.Unlock()
		s.put(first)
		if s.get() != first {
			t.Error("nothing is kept any more")
		}
		time.Sleep(2 * spareTime) // of the bubble
		s.put(first)
		time.Sleep(2 * spareTime) // of the bubble
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.object != nil {
			t.Error("what was in use meanwhile is kept")
		}
	})
}
