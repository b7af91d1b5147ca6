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

// SettleTime is how long after a boot the clock may be behind, although it is set: it shows a time from a file until it is synchronized.
const SettleTime = time.Hour

// IsExpired reports whether a stored time is at least the given duration ago, so that its object can be deleted. A time that is as far in
// the future has expired too, but not while the clock may be behind. This is so if the clock is not set, or if the uptime up of the machine
// is less than SettleTime. Without this, a board without a battery-backed clock would delete the objects at each boot.
func IsExpired(at, now time.Time, within, up time.Duration) bool {
	return !IsRecent(at, now, within) && (!at.After(now) || IsSet(now) && up >= SettleTime)
}

// maxSignedAhead is the maximum time by which a signed time may be ahead of a clock that is set. Beyond that, the signer's clock is
// probably wrong. So a certificate that is renewed a week before it expires never looks expired because of a signed time.
const maxSignedAhead = 7 * 24 * time.Hour

// IsPlausible reports whether something can have been signed at a time, if a clock shows now. It returns true if the clock is not set.
func IsPlausible(signed, now time.Time) bool { return !IsSet(now) || signed.Sub(now) <= maxSignedAhead }
