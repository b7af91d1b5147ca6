package exposition

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSpare checks that a regularly used object is kept, and that no two callers get it at the same time. An unused object is released.
func TestSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s spareObject[page]
		first := s.get()
		if s.get() == first {
			t.Error("two have the same")
		}
		s.put(first)
		for range 5 {
			time.Sleep(spareTime - time.Second) // in the bubble
			if s.get() != first {
				t.Fatal("a recently used object was released")
			}
			s.put(first)
		}
		time.Sleep(2 * spareTime) // in the bubble
		s.mu.Lock()
		if s.object != nil {
			t.Error("it is kept")
		}
		s.mu.Unlock()
		s.put(first)
		if s.get() != first {
			t.Error("no object was kept")
		}
		time.Sleep(2 * spareTime) // in the bubble
		s.put(first)
		time.Sleep(2 * spareTime) // in the bubble
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.object != nil {
			t.Error("an unused object was kept")
		}
	})
}
