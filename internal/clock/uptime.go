package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Uptime returns the time since the machine booted, including the time for which it was suspended. It does not jump when
// the wall clock is set. ok is false if the kernel does not return the uptime.
func Uptime() (up time.Duration, ok bool) {
	var now unix.Timespec
	err := unix.ClockGettime(bootClock, &now)
	return time.Duration(now.Nano()), err == nil
}

// suspended is the longest known time for which the machine was suspended since its boot, in nanoseconds.
var suspended atomic.Int64

// Steady returns a time for comparisons with other results of Steady. They have a monotonic reading, like the results of time.Now. In
// contrast to those, it includes the time for which the machine was suspended. The wall clock of the result has no meaning.
func Steady() time.Time {
	var awake unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake)
	if up, ok := Uptime(); ok && err == nil {
		addSuspended(int64(up) - awake.Nano())
	}
	return time.Now().Add(time.Duration(suspended.Load()))
}

// addSuspended raises suspended to at least d. Never lowering it keeps the results of Steady in order, although d is not exact.
func addSuspended(d int64) {
	for old := suspended.Load(); d > old; old = suspended.Load() {
		if suspended.CompareAndSwap(old, d) {
			return
		}
	}
}
