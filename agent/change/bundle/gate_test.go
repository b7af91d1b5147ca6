package bundle

import (
	"context"
	"errors"
	"testing"

	"github.com/islet-edge/islet/agent/change/bundle/medium"
)

// TestWaitForStaging checks requests of persons while the node stages a followed bundle. The first request interrupts the staging and
// waits. Its wait ends with its context. Another request gets an error at once.
func TestWaitForStaging(t *testing.T) {
	w := newWorld(t)
	n := w.boot(nil)
	interrupted := 0
	followed := request{followed: true, interrupt: func() { interrupted++ }}
	if err := n.lock(t.Context(), followed); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.lock(ctx, request{}); !errors.Is(err, context.Canceled) || interrupted != 1 {
		t.Errorf("a person who gives up: %v, %d interruptions", err, interrupted)
	}
	if err := n.lock(t.Context(), request{}); !errors.Is(err, medium.ErrBusy) || interrupted != 1 {
		t.Errorf("another request: %v, %d interruptions", err, interrupted)
	}
	n.unlock()
	if err := n.lock(t.Context(), request{}); err != nil {
		t.Error(err)
	}
}
