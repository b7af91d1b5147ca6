package image

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns: a layer that has had its share lets one that waits go first, and comes again after it; alone
// it goes on.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := newPlaces(1)
		long := &place{of: &places}
		if err := long.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(turnTime)
		if err := long.yield(t.Context()); err != nil || !long.turn {
			t.Fatalf("alone: %v", err)
		}
		var short atomic.Bool
		go func() {
			p := &place{of: &places}
			defer p.end()
			if err := p.begin(t.Context()); err != nil {
				t.Error(err)
			}
			short.Store(true)
		}()
		synctest.Wait()
		if short.Load() {
			t.Error("two have the one turn")
		}
		if err := long.yield(t.Context()); err != nil || !short.Load() || !long.turn {
			t.Errorf("the short one had its turn: %v (%v)", short.Load(), err)
		}
		// Within its share it does not give way.
		ctx, cancel := context.WithCancel(t.Context())
		late := make(chan error)
		go func() { late <- (&place{of: &places}).begin(ctx) }()
		synctest.Wait()
		time.Sleep(turnTime / 2)
		if err := long.yield(t.Context()); err != nil || !long.turn {
			t.Errorf("within its share: %v", err)
		}
		cancel()
		if err := <-late; err == nil {
			t.Error("it had a turn")
		}
		long.end()
	})
}

// TestMemoryClasses: one layer at a time has much memory, some have some, and any number little. Who
// waits for memory has no turn meanwhile, and whatever the order is, all come to an end.
func TestMemoryClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := newPlaces(2)
		var much, some, mostMuch, mostSome, ended atomic.Int32
		count := func(now, most *atomic.Int32) func() {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			return func() { now.Add(-1) }
		}
		for i := range 30 {
			go func() {
				p := &place{of: &places}
				defer p.end()
				check := func(err error) {
					if err != nil {
						t.Error(err)
					}
				}
				check(p.begin(t.Context()))
				if i%3 > 0 {
					check(p.needWindow(t.Context(), someWindow))
					defer count(&some, &mostSome)()
				}
				time.Sleep(time.Second)
				check(p.yield(t.Context()))
				if i%3 > 1 {
					check(p.needNames(t.Context(), someNames+1))
					defer count(&much, &mostMuch)()
				}
				if !p.turn {
					t.Error("no turn")
				}
				time.Sleep(time.Second)
				check(p.yield(t.Context()))
				ended.Add(1)
			}()
		}
		time.Sleep(time.Hour)
		if ended.Load() != 30 || mostMuch.Load() != muchAtOnce || mostSome.Load() != someAtOnce {
			t.Errorf("%d ended; %d had much at once, %d some", ended.Load(), mostMuch.Load(), mostSome.Load())
		}
		last := &place{of: &places}
		if err := last.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		last.end()
	})
}
