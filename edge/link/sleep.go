package link

import (
	"context"
	"time"
)

// sleep waits until d has passed or a signal arrives. It returns false if ctx has ended.
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

// signalChannel signals a channel of capacity 1.
func signalChannel(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
