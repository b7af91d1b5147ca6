package process

import (
	"context"
	"errors"
	"time"
)

// lastCalls is how long calls that go on may take once the agent is to end.
const lastCalls = 8 * time.Second

// ErrAbandoned says that what Bounded called did not end in time.
var ErrAbandoned = errors.New("an OCI runtime, a network plugin or a disk does not answer")

// Bounded calls run, and leaves it behind when ctx has ended and run has not for 8
// seconds: a process may be killed at any moment and lose nothing, so one whose
// helpers hang need not wait for them.
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
