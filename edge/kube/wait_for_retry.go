package kube

import (
	"context"
	"errors"

	"github.com/islet-edge/islet/internal/retry"
)

// WaitForRetry waits until a failed request should be retried. It waits for the back-off, and at least for the server's Retry-After. If the
// request failed with ErrNoLink, WaitForRetry waits only for a change of the link, so that an outage costs nothing. The channel for changes
// of the link may be nil. WaitForRetry returns true if a value from the channel has ended the wait. It returns an error only if ctx has
// ended.
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
