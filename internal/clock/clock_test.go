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

// TestIsPlausible checks times around the limit, for a clock that is set and one that is not.
func TestIsPlausible(t *testing.T) {
	now := EarliestTime()
	for ahead, want := range map[time.Duration]bool{-1e6 * time.Hour: true, 0: true, maxSignedAhead: true, maxSignedAhead + 1: false} {
		if IsPlausible(now.Add(ahead), now) != want || !IsPlausible(now.Add(ahead), now.Add(-1)) {
			t.Errorf("%v ahead: %v", ahead, !want)
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

// TestIsExpired checks that a time in the future expires as one in the past does, but only when the clock is right: it is behind after a
// boot.
func TestIsExpired(t *testing.T) {
	const day = 24 * time.Hour
	now := EarliestTime().Add(1000 * day)
	for name, c := range map[string]struct {
		at, now time.Time
		up      time.Duration
		want    bool
	}{
		"recent":                              {at: now.Add(-day + 1), now: now, up: day},
		"old":                                 {at: now.Add(-day), now: now, want: true},
		"old, of a clock that was not set":    {at: time.Unix(60, 0), now: now, want: true},
		"old, and the clock is still at 1970": {at: time.Unix(60, 0), now: time.Unix(60, 0).Add(day), up: day, want: true},
		"no time":                             {now: now, want: true},
		"a little ahead":                      {at: now.Add(day - 1), now: now, up: day},
		"years ahead":                         {at: now.Add(1000 * day), now: now, up: SettleTime, want: true},
		"the clock is not set":                {at: now, now: time.Unix(60, 0), up: 10 * day},
		"the clock shows the build date":      {at: now, now: EarliestTime(), up: SettleTime - 1},
	} {
		if IsExpired(c.at, c.now, day, c.up) != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
}
