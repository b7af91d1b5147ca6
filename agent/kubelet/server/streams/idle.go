package streams

import (
	"fmt"
	"time"
)

// idleError returns the cause of a session's context after the idle timeout. This error is also sent to the
// client.
func idleError(timeout time.Duration) error {
	return fmt.Errorf("the session was closed because nothing was sent or received for %v (streamingConnectionIdleTimeout)", timeout)
}
