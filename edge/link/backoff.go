package link

import (
	"context"
	"math/rand/v2"
	"time"
)

// A backoff doubles from first to most, each with a fifth of jitter, so that nodes which
// lost their server together do not come back together.
type backoff struct {
	first, most time.Duration
	last        time.Duration // without jitter; 0: none yet
}

func (b *backoff) next() time.Duration {
	b.last = min(max(b.last*2, b.first), b.most)
	return jitter(b.last)
}

func (b *backoff) reset() { b.last = 0 }

func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// sleep waits for a time, a signal, or the end of ctx, which is false.
func sleep(ctx context.Context, d time.Duration, wake ...<-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	var a, b <-chan struct{}
	switch len(wake) {
	case 2:
		b = wake[1]
		fallthrough
	case 1:
		a = wake[0]
	}
	select {
	case <-t.C:
	case <-a:
	case <-b:
	case <-ctx.Done():
		return false
	}
	return true
}

// poke signals a channel of capacity 1.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
