package retry

import (
	"slices"
	"testing"
	"time"
)

// TestPace checks that an operation that succeeds and is due again at once is repeated at growing intervals, and that the intervals are
// short again after a quiet time or after the clock was set back.
func TestPace(t *testing.T) {
	p, now := Pace{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if left := p.Left(now); left != 0 {
		t.Fatalf("waits for %s before the first success", left)
	}
	const longest = 10 * time.Minute
	repeat := func(times int) (waited []time.Duration) {
		for range times {
			p.Succeeded(now, longest)
			left := p.Left(now)
			waited = append(waited, left/time.Minute)
			now = now.Add(left)
			if p.Left(now.Add(-1)) != 1 || p.Left(now) != 0 {
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
	p.Succeeded(now, longest)
	if now = now.Add(-time.Hour); p.Left(now) != 0 {
		t.Errorf("waits for %s after the clock was set back", p.Left(now))
	}
	if got := repeat(1); got[0] != 1 {
		t.Errorf("after the clock was set back: %v", got)
	}
	p = Pace{First: time.Hour}
	p.Succeeded(now, time.Second)
	if left := p.Left(now); left != time.Hour {
		t.Errorf("a longest interval below First: %s", left)
	}
}
