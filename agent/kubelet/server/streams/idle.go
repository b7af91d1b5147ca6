package streams

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/streaming/pkg/httpstream"
)

// idleError returns the cause of a session's context after the idle timeout. This error is also sent to the
// client.
func idleError(timeout time.Duration) error {
	return fmt.Errorf("the session was closed because nothing was sent or received for %v (streamingConnectionIdleTimeout)", timeout)
}

// causeOf returns the cause with which a session ends after an error of its connection. It is nil if the client has
// disconnected.
func (s *Streams) causeOf(err error) error {
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return idleError(s.IdleTimeout)
	}
	return nil
}

// restartIdleTimeout restarts the idle timeout.
func (c *channels) restartIdleTimeout() { c.conn.SetReadDeadline(time.Now().Add(c.idle)) }

// waitForEnd waits until a SPDY connection is closed, and ends its context with the cause. It also ends the context
// after the idle timeout. The library's own timeout is not used, because it closes the connection without a message.
func (s *Streams) waitForEnd(conn httpstream.Connection, idle <-chan time.Time, cancel context.CancelCauseFunc) {
	select {
	case <-conn.CloseChan():
	case <-idle:
		cancel(idleError(s.IdleTimeout))
		<-conn.CloseChan()
	}
	cancel(nil)
}
