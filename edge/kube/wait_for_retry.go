package kube

import (
	"context"
	"errors"

	"github.com/islet-edge/islet/internal/retry"
)

// A LinkSignal receives a value when the link may be up again. Its zero value never receives one. LinkSignal is a type of its own, so that
// no other channel is passed to WaitForRetry by mistake: WaitForRetry could then wait for ever.
type LinkSignal struct{ C <-chan struct{} }

// WaitForRetry waits until a failed request should be retried. It waits for the back-off, and at least for the server's Retry-After. If the
// request failed with ErrNoLink, WaitForRetry waits only for a change of the link, so that an outage costs nothing. WaitForRetry returns
// true if a value of the link's signal has ended the wait. It returns an error only if ctx has ended.
func WaitForRetry(ctx context.Context, again *retry.Backoff, err error, link LinkSignal) (woken bool, ended error) {
	if link.C == nil || !errors.Is(err, ErrNoLink) {
		return again.Wait(ctx, RetryAfter(err), link.C)
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-link.C:
		again.Reset()
		return true, nil
	}
}
