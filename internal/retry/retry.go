package retry

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

const (
	// soon bounds the window of a short outage.
	soon = 5 * time.Second
	// share of an outage is the window after it.
	share = 32
	// doublings are counted no further, so that nothing overflows.
	doublings = 20
)

// A Backoff counts the failures of one thing that is tried. It belongs to one goroutine,
// or to a lock.
type Backoff struct {
	// First is the window of the first wait, Most that of any wait, but for what a server
	// asks for. Soon is up to where windows double, however short the outage; 0: five
	// seconds. It may be longer for those who are told when it is over.
	First, Soon, Most time.Duration

	began time.Time // of the outage; zero: there is none
	tries int
	asked int // of these, how many the server asked to be left alone after
}

// Next gives how long to wait after a failure. The least is what the server asked for
// (Retry-After); 0: it did not.
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

// Wait waits as Next says. A signal, that it is worth a try now, ends the wait and the
// outage; but never before the time that the server asked for. It reports whether there
// was a signal, with the error of ctx when that ended.
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

// Reset ends the outage.
func (b *Backoff) Reset() { *b = Backoff{First: b.First, Soon: b.Soon, Most: b.Most} }

// Failing reports whether there were failures since the last Reset.
func (b *Backoff) Failing() bool { return b.tries > 0 }

// Within gives a time anywhere in a window, and never none at all.
func Within(window time.Duration) time.Duration {
	if window <= 0 {
		return 0
	}
	return window/16 + rand.N(window-window/16)
}

// Around gives a time that differs by up to a fifth, for what is done regularly.
func Around(d time.Duration) time.Duration {
	return d*4/5 + rand.N(max(d*2/5, 1))
}
