package retry

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace checks that an operation that succeeds and is due again at once is repeated at growing intervals, and that the intervals are
// short again after a quiet time or after the clock was set back.
func TestPace(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := Pace{Now: func() time.Time { return now }}
	if left := p.Left(); left != 0 {
		t.Fatalf("waits for %s before the first success", left)
	}
	const longest = 10 * time.Minute
	repeat := func(times int) (waited []time.Duration) {
		for range times {
			p.Succeeded(longest)
			left := p.Left()
			waited = append(waited, left/time.Minute)
			now = now.Add(left - 1)
			if p.Left() != 1 {
				t.Fatalf("the interval is over before %s", left)
			}
			now = now.Add(1)
			if p.Left() != 0 {
				t.Fatalf("the interval is not over after %s", left)
			}
		}
		return waited
	}
	if got := repeat(6); !slices.Equal(got, []time.Duration{1, 2, 4, 8, 10, 10}) {
		t.Errorf("the intervals in minutes: %v", got)
	}
	now = now.Add(2*longest + 1)
	if got := repeat(2); !slices.Equal(got, []time.Duration{1, 2}) {
		t.Errorf("after a quiet time: %v", got)
	}
	p.Succeeded(longest)
	now = now.Add(-time.Hour)
	if p.Left() != 0 {
		t.Errorf("waits for %s after the clock was set back", p.Left())
	}
	if got := repeat(1); got[0] != 1 {
		t.Errorf("after the clock was set back: %v", got)
	}
	p = Pace{First: time.Hour, Now: p.Now}
	p.Succeeded(time.Second)
	if left := p.Left(); left != time.Hour {
		t.Errorf("a longest interval below First: %s", left)
	}
}

// TestPaceOfSeldomRenewals checks that an operation that is due seldom never waits, for the shortest and the longest intervals, although it
// succeeds again and again.
func TestPaceOfSeldomRenewals(t *testing.T) {
	for _, life := range []time.Duration{5 * time.Minute, time.Hour, 7 * 24 * time.Hour, 365 * 24 * time.Hour} {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		p := Pace{Now: func() time.Time { return now }}
		for n := range 100 {
			p.Succeeded(life / 10)
			now = now.Add(life * 7 / 10)
			if p.Left() != 0 {
				t.Fatalf("a certificate with a life of %s waits for %s after %d renewals", life, p.Left(), n)
			}
		}
	}
}

// TestPaceUsesSteadyTime checks that a Pace whose field Now is nil uses clock.Steady.
func TestPaceUsesSteadyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Pace{}
		p.Succeeded(time.Hour)
		if left := p.Left(); left <= 0 || left > defaultFirst {
			t.Errorf("waits for %s", left)
		}
		<-time.After(defaultFirst)
		if left := p.Left(); left != 0 {
			t.Errorf("waits for %s after the interval", left)
		}
	})
}
