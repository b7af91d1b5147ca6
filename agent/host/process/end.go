package process

import (
	"context"
	"errors"
	"time"
)

// lastCalls is how long running calls may take when the agent ends.
const lastCalls = 8 * time.Second

// ErrAbandoned means that the function of Bounded did not return in time.
var ErrAbandoned = errors.New("an OCI runtime, a network plugin or a disk does not answer")

// Bounded calls run and returns its error. If run has not returned lastCalls after the end of ctx, Bounded returns
// ErrAbandoned. It need not wait for helpers that hang, because the process can be killed at any time without losing
// data.
func Bounded(ctx context.Context, run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(lastCalls):
		return ErrAbandoned
	}
}
