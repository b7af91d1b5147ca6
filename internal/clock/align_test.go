package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUntilMultiple checks that timers with different periods and starts fire in common bursts, and that no period becomes longer.
func TestUntilMultiple(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bursts := map[time.Time]bool{}
		for _, period := range []time.Duration{20 * time.Second, time.Minute, 5 * time.Minute} {
			<-time.After(1337 * time.Millisecond)
			for began := time.Now(); time.Since(began) < time.Hour; {
				wait := UntilMultiple(period)
				if wait > period+minUntil || wait < minUntil {
					t.Fatalf("%v until the next multiple of %v", wait, period)
				}
				<-time.After(wait)
				bursts[time.Unix(time.Now().Unix()%3600, int64(time.Now().Nanosecond()))] = true
			}
		}
		if len(bursts) != 180 {
			t.Errorf("%d bursts an hour, want those of the shortest period", len(bursts))
		}
		for range 100 { // a period below minUntil
			if wait := UntilMultiple(time.Millisecond); wait <= 0 || wait > 2*time.Millisecond {
				t.Fatalf("%v until the next multiple of a millisecond", wait)
			}
			<-time.After(137 * time.Microsecond)
		}
	})
}
