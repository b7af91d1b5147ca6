package kube

import (
	"context"
	"errors"

	"github.com/islet-edge/islet/internal/retry"
)

// Wait waits until what failed with an error is worth another try: as the back-off says,
// and not before the time that the server asked for. A request that did not leave because
// the link is down (ErrNoLink) is worth one when the link changes and not before, so that
// an outage costs nothing. The channel signals that the link changed; nil: nobody says so.
// Wait reports whether there was a signal, with the error of ctx when that ended.
func Wait(ctx context.Context, again *retry.Backoff, err error, link <-chan struct{}) (woken bool, ended error) {
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
