//go:build !linux

package clock

import "golang.org/x/sys/unix"

// bootClock is the monotonic clock, on systems on which no agent runs.
const bootClock = unix.CLOCK_MONOTONIC
