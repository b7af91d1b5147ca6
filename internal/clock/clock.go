package clock

import "time"

// EarliestTime returns the earliest plausible time of a clock. islet did not exist before it.
func EarliestTime() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// IsSet reports whether a time is plausible, that is, whether it can come from a clock that was
// set.
func IsSet(t time.Time) bool { return !t.Before(EarliestTime()) }
