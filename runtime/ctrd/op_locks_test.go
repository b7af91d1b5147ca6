package ctrd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestOpLocks checks that a call waits for a lock only until its context ends, that locks exclude each other only for the same ID, and that
// no unused lock is kept.
func TestOpLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l opLocks
		l.Lock("a")
		l.Lock("b") // does not block
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.LockContext(limited, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := l.LockContext(limited, "c"); err != nil { // ctx has ended, but the lock is free
			t.Error(err)
		}
		acquired := make(chan error)
		go func() { acquired <- l.LockContext(t.Context(), "a") }()
		synctest.Wait()
		l.Unlock("a")
		if err := <-acquired; err != nil {
			t.Error(err)
		}
		for _, id := range []string{"a", "b", "c"} {
			l.Unlock(id)
		}
		if len(l.locks) > 0 {
			t.Errorf("locks are left: %v", l.locks)
		}
	})
}
