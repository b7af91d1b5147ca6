package host

import "golang.org/x/sys/unix"

// ClockSync is the synchronization state of the machine's clock.
type ClockSync string

// These are the states of a clock.
const (
	ClockSynchronized   ClockSync = "synchronized"
	ClockUnsynchronized ClockSync = "not synchronized"
	ClockUnknown        ClockSync = ""
)

// IsClockSynced reports whether a time service has synchronized the machine's clock.
func IsClockSynced() bool { return ReadClockSync() == ClockSynchronized }

// ReadClockSync returns the state that the kernel knows from the machine's time service, such as chrony or systemd-timesyncd. It returns
// ClockUnknown if the kernel rejects the query.
func ReadClockSync() ClockSync {
	var t unix.Timex
	state, err := unix.Adjtimex(&t) // no modes: it only reads
	switch {
	case err != nil:
		return ClockUnknown
	case state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		return ClockUnsynchronized
	}
	return ClockSynchronized
}
