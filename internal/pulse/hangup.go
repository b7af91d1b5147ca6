package pulse

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// HasHungUp reports whether the other end of a connection is closed, also if data was not read yet, and whether this end is
// closed. It returns false for a connection that has no socket. The connection may be wrapped in types with a NetConn method.
// A peer with more unread data than the receive buffer cannot report its end. The kernel finds this peer by keep-alive probes
// some minutes later.
func HasHungUp(c net.Conn) (closed bool) {
	raw, err := rawConn(c)
	if raw == nil && err == nil {
		return false
	}
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			n, err := unix.Poll(poll, 0)
			closed = err == nil && n > 0
		})
	}
	return closed || err != nil
}

// hangUpInterval is the interval at which AwaitHangUp checks a connection.
const hangUpInterval = 2 * time.Second

// AwaitHangUp waits until the peer has disconnected and nobody reads the rest of its data. It returns false if ctx ends first. The
// counter reads must increase after each read from the connection. A reader finds the end of the connection by itself, but cannot do so
// while it keeps data that nobody takes, such as the input of a command that waits.
func AwaitHangUp(ctx context.Context, c net.Conn, reads *atomic.Uint64) bool {
	tick := time.NewTicker(hangUpInterval)
	defer tick.Stop()
	for last := reads.Load(); ; {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		before := last
		if last = reads.Load(); last == before && HasHungUp(c) {
			return true
		}
	}
}
