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
