package retry

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	// defaultSecondWindow is the default of Backoff.SecondWindow.
	defaultSecondWindow = 5 * time.Second
	// outageRatio is the ratio of an outage's length to the window after it.
	outageRatio = 32
	// maxDoublings is the maximum number of doublings of a window. It prevents an overflow.
	maxDoublings = 20
)

// A Backoff counts the failed attempts at one operation and computes the waits between them. It is
// not safe for concurrent use.
type Backoff struct {
	// A wait is a random time within a window. The window of the first wait is FirstWindow. It doubles with each failure
	// until it reaches SecondWindow, the maximum in a short outage. In a long outage it grows up to MaxWindow. The default of SecondWindow
	// is 5 s. A caller that is notified of the end of an outage may set a larger value. A server's Retry-After is
	// added to the wait.
	FirstWindow, SecondWindow, MaxWindow time.Duration

	began           time.Time // the start of the outage; zero if there is no outage
	tries           int
	retryAfterCount int // the number of failures with a Retry-After
}

// Next counts a failure and returns the time to wait. The wait is at least the server's Retry-After, which may be 0.
func (b *Backoff) Next(retryAfter time.Duration) time.Duration {
	if b.tries == 0 {
		b.began = time.Now()
	}
	doubled := min(b.FirstWindow<<min(b.tries, maxDoublings), max(cmp.Or(b.SecondWindow, defaultSecondWindow), b.FirstWindow))
	window := max(doubled, time.Since(b.began)/outageRatio)
	if retryAfter > 0 {
		window = max(window, retryAfter<<min(b.retryAfterCount, maxDoublings))
		b.retryAfterCount++
	}
	b.tries++
	return retryAfter + RandomWait(min(window, b.MaxWindow))
}

// Wait counts a failure and waits for the time that Next returns. A value on the channel wake means that the server may respond again.
// After such a value, Wait returns as soon as the server's Retry-After has passed. The result woken reports whether Wait has received
// such a value. If ctx ends, Wait returns the error of ctx.
func (b *Backoff) Wait(ctx context.Context, retryAfter time.Duration, wake <-chan struct{}) (woken bool, err error) {
	began := time.Now()
	timer := time.NewTimer(b.Next(retryAfter))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return woken, ctx.Err()
		case <-wake:
			b.Reset()
			woken, wake = true, nil
			timer.Reset(max(retryAfter-time.Since(began), 0))
		case <-timer.C:
			return woken, nil
		}
	}
}

// Reset ends the outage. The next failure counts as the first failure of a new outage.
func (b *Backoff) Reset() {
	*b = Backoff{FirstWindow: b.FirstWindow, SecondWindow: b.SecondWindow, MaxWindow: b.MaxWindow}
}

// HasFailed reports whether there were failures since the last Reset.
func (b *Backoff) HasFailed() bool { return b.tries > 0 }

// RandomWait returns a random time between a sixteenth of the window and the whole window.
func RandomWait(window time.Duration) time.Duration {
	if window <= 0 {
		return 0
	}
	return window/16 + rand.N(window-window/16)
}

// Jitter returns a random time that differs from d by at most a fifth of d, for periodic work.
func Jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(max(d*2/5, 1))
}

// After returns the wait that a server requests by the header Retry-After, which contains seconds or a date. It returns at most the given
// maximum, and 0 if there is no valid header. https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
func After(header string, now time.Time, most time.Duration) time.Duration {
	var wait time.Duration
	if n, err := strconv.ParseUint(header, 10, 31); err == nil {
		wait = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), most)
}
