package update

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestFollowWaits: an archive that the node follows is not looked at while the disk is to be
// spared, but soon after, and then as often as ever; a person who asks need not wait.
func TestFollowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wait atomic.Bool
		var looks atomic.Int32
		wait.Store(true)
		u := New(Config{Stager: Stager{Log: slog.New(slog.DiscardHandler)}, Follow: "/archive", Every: 24 * time.Hour, Wait: wait.Load,
			Kept: func() string { looks.Add(1); return "one that ends each look before it writes" }})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- u.Run(ctx) }()
		after := func(d time.Duration, want int32) {
			t.Helper()
			time.Sleep(d) // of the bubble
			synctest.Wait()
			if got := looks.Swap(0); got != want {
				t.Errorf("%d looks, not %d", got, want)
			}
		}
		after(3*24*time.Hour+time.Hour, 0)
		if _, err := u.Update(ctx, "/archive", false, false, nil); err == nil {
			t.Error("no error")
		}
		after(0, 1)
		wait.Store(false)
		after(spared, 1)
		after(24*time.Hour-time.Second, 0)
		after(time.Second, 1)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
