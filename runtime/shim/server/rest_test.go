package server

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestRest checks a shim in which nothing changes. After quietTime, it returns memory to the kernel once. After idleTimeout, it ends.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forcedGCs := func() uint32 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.NumForcedGC
		}
		s := New(slog.New(slog.DiscardHandler), nil)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := time.Time{}
		s.stop = func() { ended = time.Now() }
		before := forcedGCs()
		go s.endWhenIdle(ctx)
		after := func(d time.Duration, want uint32) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := forcedGCs() - before; got != want {
				t.Errorf("memory was returned %d times, want %d", got, want)
			}
		}
		after(quietTime-time.Second, 0)
		s.noteChange()
		after(quietTime-time.Second, 0)
		after(2*time.Second, 1)
		after(quietTime+time.Second, 1)
		s.noteChange()
		last := time.Now()
		after(quietTime+time.Second, 2)
		after(idleTimeout, 2)
		if ended.Sub(last) != idleTimeout {
			t.Errorf("the shim ended %v after the last change", ended.Sub(last))
		}
	})
}
