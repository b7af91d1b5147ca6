package kube

import (
	"context"

	"k8s.io/client-go/util/flowcontrol"
)

// unboundKey is the context key that marks requests without a rate limit.
type unboundKey struct{}

// WithoutRateLimit returns a context for requests to which QPS and Burst do not apply. These requests do not count for the limit of other
// requests. Use it for requests that have their own limit.
func WithoutRateLimit(ctx context.Context) context.Context {
	return context.WithValue(ctx, unboundKey{}, true)
}

type limiter struct{ flowcontrol.RateLimiter }

// Wait blocks until the request may be sent.
func (l limiter) Wait(ctx context.Context) error {
	if ctx.Value(unboundKey{}) != nil {
		return nil
	}
	return l.RateLimiter.Wait(ctx)
}
