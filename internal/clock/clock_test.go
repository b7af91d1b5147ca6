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

// TestIsRecent checks that a time in the far future is not recent, as a time in the far past. A small step of the clock changes nothing.
func TestIsRecent(t *testing.T) {
	now := EarliestTime()
	for ago, want := range map[time.Duration]bool{
		0: true, time.Minute - 1: true, time.Minute: false, 100 * 365 * 24 * time.Hour: false,
		-1: true, 1 - time.Minute: true, -time.Minute: false, -100 * 365 * 24 * time.Hour: false,
	} {
		if IsRecent(now.Add(-ago), now, time.Minute) != want {
			t.Errorf("%v ago: %v", ago, !want)
		}
	}
	if IsRecent(now.AddDate(1000, 0, 0), now, time.Minute) || IsRecent(time.Time{}, now, time.Minute) {
		t.Error("a time beyond every duration is recent")
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
