package clock

import "time"

// EarliestTime returns a time before the first version of islet. A clock that shows an earlier time is wrong.
func EarliestTime() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// IsSet reports whether a time is plausible, that is, whether it can come from a clock that was
// set.
func IsSet(t time.Time) bool { return !t.Before(EarliestTime()) }
