package kube

import (
	"context"

	"k8s.io/client-go/util/flowcontrol"
)

// unboundKey is the context key of requests that the limiter does not count.
type unboundKey struct{}

// WithoutRateLimit returns a context whose requests are not limited by QPS and Burst, and do not count for them. Use it for requests that
// have their own limit.
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
