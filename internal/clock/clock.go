package clock

import "time"

// EarliestTime returns a time before the first version of islet. A clock that shows an earlier time is wrong.
func EarliestTime() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// IsSet reports whether a time is plausible, that is, whether it can come from a clock that was
// set.
func IsSet(t time.Time) bool { return !t.Before(EarliestTime()) }

// IsRecent reports whether a stored time is less than the given duration ago. A time that is as far in the future is not recent: the clock
// was wrong when the time was stored, or was set back since then. Without this, a clock that was once ahead by years would make a time
// recent for years.
func IsRecent(at, now time.Time, within time.Duration) bool { return now.Sub(at).Abs() < within }
