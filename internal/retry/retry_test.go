package retry

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestShortOutage checks that every wait is at most five seconds in an outage of up to a minute.
func TestShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			b := Backoff{FirstWindow: time.Second / 2, MaxWindow: 2 * time.Minute}
			for began := time.Now(); time.Since(began) < time.Minute; {
				wait := b.Next(0)
				if wait <= 0 || wait > defaultSecondWindow {
					t.Fatalf("after %s the next try is %s away", time.Since(began), wait)
				}
				time.Sleep(wait)
			}
			if b.tries > 60 {
				t.Errorf("%d tries in a minute", b.tries)
			}
		}
	})
}

// TestReturnOfMany checks that machines that failed at the same time for an hour reconnect at different times. The peak rate of
// connections is less than three times the mean.
func TestReturnOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const machines, outage = 20000, time.Hour
		var back []time.Duration
		for range machines {
			b, at := Backoff{FirstWindow: time.Second, MaxWindow: 2 * time.Minute}, time.Duration(0)
			for at < outage {
				b.began = time.Now().Add(-at) // the outage has lasted for this time
				b.tries = max(b.tries, 1)
				at += b.Next(0)
			}
			back = append(back, at-outage)
		}
		last := slices.Max(back)
		if last < time.Minute || last > 2*time.Minute {
			t.Errorf("the last comes back after %s", last)
		}
		seconds := make([]int, int(last/time.Second)+1)
		for _, at := range back {
			seconds[at/time.Second]++
		}
		if peak, mean := slices.Max(seconds), machines/len(seconds); peak > 3*mean {
			t.Errorf("a second brings %d, the mean is %d", peak, mean)
		}
	})
}

// TestRetryAfter checks that a wait is at least the server's Retry-After. Each further Retry-After makes the waits longer, until Reset is
// called.
func TestRetryAfter(t *testing.T) {
	const least = 3 * time.Second
	widest := func(refusals int) (most time.Duration) {
		for range 300 {
			b := Backoff{FirstWindow: time.Second / 2, MaxWindow: time.Minute}
			var wait time.Duration
			for range refusals {
				wait = b.Next(least)
			}
			if wait < least || wait > least+time.Minute {
				t.Fatalf("the wait is %s", wait)
			}
			most = max(most, wait)
			if b.Reset(); b.HasFailed() || b.Next(0) > time.Second/2 {
				t.Fatal("not reset")
			}
		}
		return most
	}
	if first, fifth := widest(1), widest(5); first > 2*least || fifth < 30*time.Second {
		t.Errorf("after one refusal up to %s, after five up to %s", first, fifth)
	}
	if widest(100) > least+time.Minute {
		t.Error("not bounded")
	}
}

// TestWait checks that a signal ends the wait, but not before the server's Retry-After is over.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{FirstWindow: time.Minute, MaxWindow: time.Hour}
		again := make(chan struct{}, 1)
		again <- struct{}{}
		began := time.Now()
		if woken, err := b.Wait(t.Context(), 0, again); !woken || err != nil || time.Since(began) != 0 || b.HasFailed() {
			t.Errorf("woken %v after %s: %v", woken, time.Since(began), err)
		}
		again <- struct{}{}
		if woken, err := b.Wait(t.Context(), 3*time.Second, again); !woken || err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("woken %v after %s: %v", woken, time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Wait(ctx, time.Minute, again); err == nil {
			t.Error("the end of its context does not end it")
		}
		if woken, err := b.Wait(t.Context(), 0, nil); woken || err != nil || !b.HasFailed() {
			t.Errorf("woken %v: %v", woken, err)
		}
	})
}

func TestJitter(t *testing.T) {
	for _, d := range []time.Duration{0, 1, time.Nanosecond * 20, time.Minute} {
		for range 100 {
			if w := RandomWait(d); w < 0 || w > d {
				t.Errorf("%s within %s", w, d)
			}
			if a := Jitter(d); a < d*4/5 || a > d*6/5+1 {
				t.Errorf("%s around %s", a, d)
			}
		}
	}
}

// TestAfter checks the two forms of the header Retry-After, and values that are not valid or too large.
func TestAfter(t *testing.T) {
	now, most := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 10*time.Minute
	for header, want := range map[string]time.Duration{
		"": 0, "nonsense": 0, "-5": 0, "0": 0, "7": 7 * time.Second, "99999999": most, "99999999999999999999": 0,
		"Thu, 01 Jan 2026 00:01:00 GMT": time.Minute, "Thu, 01 Jan 2015 00:00:00 GMT": 0, "Thu, 01 Jan 2099 00:00:00 GMT": most,
	} {
		if got := After(header, now, most); got != want {
			t.Errorf("%q: %v, not %v", header, got, want)
		}
	}
}
