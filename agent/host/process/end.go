package process

import (
	"context"
	"errors"
	"time"
)

// lastCalls bounds running calls once the agent is ending.
const lastCalls = 8 * time.Second

// ErrAbandoned means that the function of Bounded did not return in time.
var ErrAbandoned = errors.New("an OCI runtime, a network plugin or a disk does not answer")

// Bounded calls run. It returns without it when ctx has ended for 8 seconds. The process can be
// killed at any time without losing data, so it does not wait for helpers that hang.
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
