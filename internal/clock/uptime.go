package clock

import (
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
