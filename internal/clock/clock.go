package clock

import "time"

// First is the earliest time that can be: islet is no older.
func First() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// IsSet reports whether a time can be one of a clock that was set.
func IsSet(t time.Time) bool { return !t.Before(First()) }
