package kube

import (
	"context"

	"k8s.io/client-go/util/flowcontrol"
)

// unbound marks the context of a request that the limiter lets pass.
type unbound struct{}

// Unbound gives a context whose requests QPS and Burst do not bound: they have a bound
// of their own, and take nothing from what others may ask.
func Unbound(ctx context.Context) context.Context { return context.WithValue(ctx, unbound{}, true) }

type limiter struct{ flowcontrol.RateLimiter }

// Wait waits for a request's turn.
func (l limiter) Wait(ctx context.Context) error {
	if ctx.Value(unbound{}) != nil {
		return nil
	}
	return l.RateLimiter.Wait(ctx)
}
