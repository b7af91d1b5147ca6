package mounts

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/sys/mountinfo"
)

// TestTableIsShared checks callers that arrive while the mount table is being read. A single additional read serves all of these callers.
// No caller gets a table that was read before its call.
func TestTableIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mounted, readings atomic.Int64
		s := newSharedReading(func() ([]*mountinfo.Info, error) {
			readings.Add(1)
			seen := mounted.Load()
			time.Sleep(time.Second)
			return []*mountinfo.Info{{ID: int(seen)}}, nil
		})
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				own := mounted.Add(1)
				if got, err := s.read(); err != nil || len(got) != 1 || int64(got[0].ID) < own {
					t.Errorf("mount %d is not in the table: %v, %v", own, got, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if n := readings.Load(); n != 2 {
			t.Errorf("the table was read %d times", n)
		}
		if _, err := s.read(); err != nil || readings.Load() != 3 {
			t.Errorf("a later call must read again: %d reads, %v", readings.Load(), err)
		}
	})
}
