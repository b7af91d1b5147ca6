package clock

import "golang.org/x/sys/unix"

// bootClock is the clock that begins at the boot of the machine. It also counts the time for which the machine was suspended.
const bootClock = unix.CLOCK_BOOTTIME
