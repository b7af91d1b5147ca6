package clock

import "time"

// minUntil is the minimum result of UntilMultiple. The wall clock may run slower than a timer, which then fires before the multiple.
const minUntil = time.Second

// UntilMultiple returns the time until the wall clock shows the next multiple of the period. Timers that are set to this time fire together
// if one period is a multiple of the other. An idle node then wakes up once for all of them. The result is between minUntil and the period
// plus minUntil. Do not use it for requests to a server, because all nodes would send them at the same time. If the clock is set, only the
// phase changes.
func UntilMultiple(period time.Duration) time.Duration {
	now := time.Now()
	left := now.Truncate(period).Add(period).Sub(now.Round(0))
	if left < min(minUntil, period) {
		left += period
	}
	return left
}
