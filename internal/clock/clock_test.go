package clock

import (
	"testing"
	"time"
)

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
