package brake

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// A counted is a Meta that counts the writes. The test can make the writes wait until their context ends.
type counted struct{ mortal }

func (c counted) SetMetaOrRetry(ctx context.Context, key, value string) error {
	c.s.writes.Add(1)
	if c.s.stalled.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return c.mortal.SetMetaOrRetry(ctx, key, value)
}

// TestHoldTime checks that the duration of a hold is measured without the wall clock, also over restarts. The time in which the agent does
// not run does not count. If the agent is killed, at most storeHeldEvery is lost.
func TestHoldTime(t *testing.T) {
	const years = 100 * 365 * 24 * time.Hour
	at(t, func(s *site) {
		s.limit = 10 * time.Hour
		s.restart()
		s.away(func() { s.recreateCluster() })
		s.want("a b c d", "a b c d")
		before := s.writes.Load()
		for i, ahead := range []time.Duration{years, -years, 0, years} {
			s.ahead.Store(int64(ahead))
			time.Sleep(2 * time.Hour) // the hold lasts, in the bubble's time
			s.want("a b c d", "a b c d")
			if left := s.brake.HoldDeadline().Sub(time.Now().Add(ahead)); left > s.limit-time.Duration(i)*2*time.Hour || left < time.Hour {
				t.Errorf("%v with a clock of %v: %v are left", i, ahead, left)
			}
			if i%2 == 0 {
				s.kill()
			} else {
				s.stop()
			}
			time.Sleep(24 * time.Hour) // the machine is off, in the bubble's time
			s.start()
			s.want("a b c d", "a b c d")
		}
		if n := s.writes.Load() - before; n > 4*(2*6+2) {
			t.Errorf("%d writes in 8 hours", n)
		}
		time.Sleep(2*time.Hour + 2*storeHeldEvery + 5*time.Minute) // the rest of the limit, in the bubble's time
		s.want("", "")
	})
}

// TestEndOnAStalledDisk checks that the agent ends although the disk does not store the duration of a hold.
func TestEndOnAStalledDisk(t *testing.T) {
	at(t, func(s *site) {
		s.limit = 10 * time.Hour
		s.restart()
		s.away(func() { s.recreateCluster() })
		s.want("a b c d", "a b c d")
		before := s.writes.Load()
		s.stalled.Store(true)
		time.Sleep(time.Minute) // the next check of the hold, in the bubble's time
		began := time.Now()
		s.stop()
		if took := time.Since(began); took > 2*endTimeout || s.writes.Load() == before {
			t.Errorf("after %v, %d writes", took, s.writes.Load()-before)
		}
		s.stalled.Store(false)
		s.start()
		s.want("a b c d", "a b c d")
	})
}

// TestConfigurationWithoutACluster checks that a node holds all pods of the API server if its configuration has no cluster any more. The
// hold ends if the configuration has the cluster again, if a user accepts the end of the pods, or if its time limit has passed.
func TestConfigurationWithoutACluster(t *testing.T) {
	ended := 0
	leave := func(s *site) {
		s.Helper()
		s.stop()
		s.Disconnect()
		s.left = func() { ended++ }
		s.start()
	}
	back := func(s *site) {
		s.Helper()
		s.stop()
		s.left = nil
		s.start()
	}
	at(t, func(s *site) {
		leave(s)
		s.stays("a b c d", "a b c d")
		h, _ := s.brake.CurrentHold()
		text := s.brake.Describe(h)
		if !slices.Contains(s.events, ReasonHeld) || !strings.Contains(text, "islet accept") || !strings.Contains(text, "default/d") {
			t.Errorf("events %q, status %q", s.events, text)
		}
		back(s) // still without a connection
		s.want("a b c d", "")
		s.Remove(pod("d"))
		s.Reconnect()
		s.want("a b c", "")
		s.stays("a b c", "")
		leave(s)
		s.want("a b c", "a b c")
		s.accept(3)
		if ended != 1 {
			t.Errorf("the brake has reported the end of the pods %d times", ended)
		}
		s.want("", "")
		s.stays("", "")
	})
	at(t, func(s *site) { // the pods of a lost cluster stay on hold, and a pod that the present cluster has deleted ends
		s.away(func() {
			s.recreateCluster()
			s.Put(pod("new"))
		})
		s.want("a b c d new", "a b c d")
		s.stays("a b c d new", "a b c d") // the node has stored that this is its cluster
		leave(s)
		s.want("a b c d new", "a b c d new")
		s.restart()
		s.want("a b c d new", "a b c d new")
		s.Remove(pod("new"))
		back(s) // still without a connection
		s.want("a b c d new", "a b c d")
		if h, _ := s.brake.CurrentHold(); h.Why == whyLeft {
			t.Errorf("the hold has the reason %q although the configuration has a cluster", h.Why)
		}
		s.Reconnect()
		s.want("a b c d", "a b c d")
		s.stays("a b c d", "a b c d")
	})
	ended = 0
	at(t, func(s *site) {
		s.limit = time.Hour
		leave(s)
		time.Sleep(30*time.Minute + 30*time.Second) // between two checks of the hold
		s.restart()
		s.want("a b c d", "a b c d")
		time.Sleep(31 * time.Minute)
		s.want("", "")
		if ended != 1 {
			t.Errorf("the brake has reported the end of the pods %d times", ended)
		}
	})
}
