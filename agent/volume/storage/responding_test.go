package storage

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestLeavesOneBehind checks that repeated attempts of a hanging operation share one call. After the end of this call, the next attempt
// starts a new one.
func TestLeavesOneBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		hang, gone := make(chan struct{}), errors.New("it was gone")
		try := func(ctx context.Context, of string) error {
			return CallOrAbandon(ctx, "test", of, func() error { calls.Add(1); <-hang; return gone })
		}
		for range 5 {
			ctx, stop := context.WithTimeout(t.Context(), probeTime)
			if err := try(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			stop()
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls are running", n)
		}
		last := make(chan error, 1)
		go func() { last <- try(t.Context(), "a") }()
		synctest.Wait()
		close(hang)
		if err := <-last; !errors.Is(err, gone) {
			t.Errorf("the waiting caller got %v", err)
		}
		if err := try(t.Context(), "b"); !errors.Is(err, gone) || calls.Load() != 2 {
			t.Errorf("got %v after %d calls", err, calls.Load())
		}
	})
}
