package process

import (
	"context"
	"errors"
	"time"
)

// callGrace is the maximum time for which running calls may continue when the agent ends.
const callGrace = 8 * time.Second

// ErrAbandoned means that the function of RunBounded did not return in time.
var ErrAbandoned = errors.New("an OCI runtime, a network plugin or a disk does not answer")

// RunBounded calls run and returns its error. If run has not returned within callGrace after the end of ctx, RunBounded
// returns ErrAbandoned. The agent need not wait for an OCI runtime or a plugin that hangs, because the process can be
// killed at any time without losing data.
func RunBounded(ctx context.Context, run func() error) error {
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
	case <-time.After(callGrace):
		return ErrAbandoned
	}
}
