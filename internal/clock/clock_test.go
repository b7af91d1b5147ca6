package clock

import (
	"testing"
	"time"
)

// TestUptime checks that the clock runs, and that it started before this process.
func TestUptime(t *testing.T) {
	up, ok := Uptime()
	if again, _ := Uptime(); !ok || up <= 0 || again < up {
		t.Errorf("%v, then %v (%v)", up, again, ok)
	}
}

func TestIsSet(t *testing.T) {
	for at, want := range map[time.Time]bool{
		{}: false, time.Unix(0, 0): false, EarliestTime().Add(-1): false, EarliestTime(): true,
		EarliestTime().In(time.FixedZone("west", -3600)): true, time.Now(): true,
	} {
		if IsSet(at) != want {
			t.Errorf("%s: %v", at, !want)
		}
	}
}

// TestSteady checks that the time for which the machine was suspended has passed for Steady, and that Steady never runs backwards. A
// machine that was suspended has a longer uptime, which the test simulates.
func TestSteady(t *testing.T) {
	defer suspended.Store(suspended.Load())
	before := Steady()
	const slept = 22 * time.Hour
	addSuspended(suspended.Load() + int64(slept))
	after := Steady()
	if passed := after.Sub(before); passed < slept || passed > slept+time.Hour {
		t.Errorf("%s have passed", passed)
	}
	addSuspended(int64(time.Second)) // the two clocks are not read at the same time
	if again := Steady(); again.Before(after) || again.Sub(after) > time.Hour {
		t.Errorf("%s have passed then", again.Sub(after))
	}
}
