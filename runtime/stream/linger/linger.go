package linger

import (
	"context"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/pulse"
)

const (
	// closeTimeout is how long the peer may take to close the connection after it has received all
	// data.
	closeTimeout = 10 * time.Second
	// checkInterval is the interval at which the number of unsent bytes is checked.
	checkInterval = time.Second
)

// Close closes the write side of c, waits, and closes c. It waits until the peer closes the
// connection. The wait is limited: it ends when closeTimeout has passed since the peer acknowledged
// all data, or when a second has passed since ctx ended. It does not wait for a peer that no longer
// acknowledges data; see package pulse. Close discards input. Another goroutine that still reads
// from c gets only a part of the input. If it cancels ctx on an error, the peer may lose data.
func Close(ctx context.Context, c net.Conn) error { return closeAfter(ctx, c, pulse.Silence) }

func closeAfter(ctx context.Context, c net.Conn, silence time.Duration) error {
	if closeWrite(c) {
		waitForClose(ctx, c, silence)
	}
	return c.Close()
}

func waitForClose(ctx context.Context, c net.Conn, silence time.Duration) {
	disconnected := make(chan struct{})
	go func() { // ends when c is closed
		io.Copy(io.Discard, c)
		close(disconnected)
	}()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for waited := time.Duration(0); waited < closeTimeout; {
		select {
		case <-disconnected:
			return
		case <-ctx.Done():
			select {
			case <-disconnected:
			case <-time.After(time.Second):
			}
			return
		case <-tick.C:
			waited += checkInterval
			if unacknowledgedBytes(c) > 0 {
				waited = 0
			}
			if pulse.IsLost(c, silence) {
				return
			}
		}
	}
}

// closeWrite closes the write side of each layer of a connection, for example TLS and TCP. It
// returns false if no layer supports this.
func closeWrite(c net.Conn) (ok bool) {
	for c != nil {
		if h, half := c.(interface{ CloseWrite() error }); half {
			h.CloseWrite() // fails if the peer has disconnected
			ok = true
		}
		c = innerConn(c)
	}
	return ok
}

func innerConn(c net.Conn) net.Conn {
	if w, ok := c.(interface{ NetConn() net.Conn }); ok {
		return w.NetConn()
	}
	return nil
}

// unacknowledgedBytes returns the number of bytes that the peer has not acknowledged.
func unacknowledgedBytes(c net.Conn) (n int) {
	for ; c != nil; c = innerConn(c) {
		s, ok := c.(syscall.Conn)
		if !ok {
			continue
		}
		raw, err := s.SyscallConn()
		if err != nil {
			return 0
		}
		raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
		return n
	}
	return 0
}
