package link

import (
	"context"
	"time"
)

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
