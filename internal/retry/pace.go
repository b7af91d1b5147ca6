package retry

import (
	"cmp"
	"time"
)

const (
	// defaultFirst is the default of Pace.First.
	defaultFirst = time.Minute
	// maxInterval is the maximum interval of a Pace. A user who has corrected the cause waits at most for this time.
	maxInterval = 24 * time.Hour
)

// A Pace limits the repetition of an operation that succeeds, such as the renewal of a certificate. Such an operation may be due again at
// once, because a clock is wrong or because the other machine does not deliver everything that was requested. Without a minimum interval
// the operation would then be repeated without end, each time with requests and writes to the disk. The caller passes the current time,
// preferably with its monotonic reading. A Pace is not safe for concurrent use.
type Pace struct {
	// First is the minimum interval after a success. The default is a minute.
	First time.Duration

	last     time.Time // time of the last success; zero if there is none
	interval time.Duration
}

// Succeeded records a success. The minimum interval doubles with each success, up to the given longest interval, which is at most a day.
// It becomes First again after a time of twice the longest interval without a success.
func (p *Pace) Succeeded(now time.Time, longest time.Duration) {
	first := cmp.Or(p.First, defaultFirst)
	longest = max(min(longest, maxInterval), first)
	if since := now.Sub(p.last); since < 0 || since > 2*longest {
		p.interval = 0
	}
	p.last, p.interval = now, min(max(2*p.interval, first), longest)
}

// Left returns the time until the operation may be repeated. It returns 0 if the clock was set back since the last success.
func (p *Pace) Left(now time.Time) time.Duration {
	if p.last.IsZero() || now.Before(p.last) {
		return 0
	}
	return max(p.interval-now.Sub(p.last), 0)
}
