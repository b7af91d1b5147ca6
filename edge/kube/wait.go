package kube

import (
	"context"
	"errors"

	"github.com/islet-edge/islet/internal/retry"
)

// WaitForRetry waits until a request that failed with err should be retried: after the back-off, and not before the server's Retry-After
// has passed. After ErrNoLink it waits for a value from link instead, so that an outage costs nothing. link receives a value when the link
// has changed. It may be nil. WaitForRetry reports whether link ended the wait. The returned error is that of ctx.
func WaitForRetry(ctx context.Context, again *retry.Backoff, err error, link <-chan struct{}) (woken bool, ended error) {
	if link == nil || !errors.Is(err, ErrNoLink) {
		return again.Wait(ctx, RetryAfter(err), link)
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-link:
		again.Reset()
		return true, nil
	}
}
