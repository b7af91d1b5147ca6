package clock

import "time"

// First returns the earliest time that a clock may plausibly show: islet did not exist before it.
func First() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// IsSet reports whether a time is plausible, that is, whether it can come from a clock that was
// set.
func IsSet(t time.Time) bool { return !t.Before(First()) }
