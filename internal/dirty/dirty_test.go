package dirty_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/islet-edge/islet/internal/dirty"
)

// TestNothingIsLost checks that concurrent calls of TakeAll lose no added key. A key that was added twice must be returned once.
func TestNothingIsLost(t *testing.T) {
	s := dirty.New[int]()
	s.Add(1)
	s.Add(1)
	<-s.Wake()
	if got := s.TakeAll(); !slices.Equal(got, []int{1}) {
		t.Errorf("got %v", got)
	}
	select {
	case <-s.Wake():
		t.Error("woken for nothing")
	default:
	}
	var writers sync.WaitGroup
	for i := range 100 {
		writers.Go(func() { s.Add(i) })
	}
	seen := map[int]bool{}
	for len(seen) < 100 {
		<-s.Wake()
		for _, i := range s.TakeAll() {
			seen[i] = true
		}
	}
	writers.Wait()
	if got := s.TakeAll(); len(got) > 0 {
		t.Errorf("still there: %v", got)
	}
}
