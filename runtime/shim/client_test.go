package shim

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// TestSilentShim checks calls to a shim that has stopped reading. Each call ends with its context, whether its request is being
// written or waits for another one. Close does not block either.
func TestSilentShim(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(t.Context(), socket, func(wire.Container) {}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; { // fill the buffers of the socket
		c.conn.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = c.conn.Write(make([]byte, 64<<10))
	}
	c.conn.SetWriteDeadline(time.Time{})
	results := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	const calls = 10
	for range calls {
		go func() { results <- c.Delete(ctx, "id") }()
	}
	cancel()
	for range calls {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("a call: %v", err)
		}
	}
	if _, err := c.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a later call: %v", err)
	}
	if len(c.waitingCalls) > 0 {
		t.Errorf("%d calls are still waiting", len(c.waitingCalls))
	}
	c.Close()
	if err := c.Shutdown(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("a call after the end: %v", err)
	}
}
