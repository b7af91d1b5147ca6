package retry

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

const (
	// soon is the default of Backoff.Soon.
	soon = 5 * time.Second
	// share is the ratio of an outage's length to the window after it.
	share = 32
	// doublings is the maximum number of doublings of a window. It prevents an overflow.
	doublings = 20
)

// A Backoff counts the failed attempts at one thing. It is not safe for concurrent use.
type Backoff struct {
	// First is the window of the first wait. Most is the largest window of any wait. A server's Retry-After is added
	// to it. Soon is the largest window in a short outage. Windows double until they reach it. The default is 5 s. It
	// may be longer for a caller that is notified when the outage ends.
	First, Soon, Most time.Duration

	began time.Time // the start of the outage; zero if there is no outage
	tries int
	asked int // the number of failures with a Retry-After
}

// Next counts a failure and returns how long to wait. least is the server's Retry-After, or 0.
func (b *Backoff) Next(least time.Duration) time.Duration {
	if b.tries == 0 {
		b.began = time.Now()
	}
	window := max(min(b.First<<min(b.tries, doublings), max(cmp.Or(b.Soon, soon), b.First)), time.Since(b.began)/share)
	if least > 0 {
		window = max(window, least<<min(b.asked, doublings))
		b.asked++
	}
	b.tries++
	return least + Within(min(window, b.Most))
}

// Wait counts a failure and waits as long as Next returns. A value on the channel again is a signal that an attempt
// may succeed now. The signal ends the outage, and Wait returns as soon as least has passed. woken reports whether
// there was a signal. err is the error of ctx if ctx ended.
func (b *Backoff) Wait(ctx context.Context, least time.Duration, again <-chan struct{}) (woken bool, err error) {
	began := time.Now()
	timer := time.NewTimer(b.Next(least))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return woken, ctx.Err()
		case <-again:
			b.Reset()
			woken, again = true, nil
			timer.Reset(max(least-time.Since(began), 0))
		case <-timer.C:
			return woken, nil
		}
	}
}

// Reset ends the outage. The next failure counts as the first one.
func (b *Backoff) Reset() { *b = Backoff{First: b.First, Soon: b.Soon, Most: b.Most} }

// Failing reports whether there were failures since the last Reset.
func (b *Backoff) Failing() bool { return b.tries > 0 }

// Within returns a random time within a window, at least a sixteenth of it.
func Within(window time.Duration) time.Duration {
	if window <= 0 {
		return 0
	}
	return window/16 + rand.N(window-window/16)
}

// Around returns a random time within a fifth of d, for periodic work.
func Around(d time.Duration) time.Duration {
	return d*4/5 + rand.N(max(d*2/5, 1))
}
