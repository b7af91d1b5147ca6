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
	// patience is how long a peer that has received everything may take to close the connection.
	patience = 10 * time.Second
	// checkInterval is the interval at which the number of unsent bytes is checked.
	checkInterval = time.Second
)

// Close closes c when its peer has closed it, when patience has passed since the peer received
// everything, or a second after the end of ctx. While data is unsent, it waits as long as the peer
// responds. It does not wait for a peer that does not respond any more (see package pulse). Other
// goroutines may still read from c, but receive only a part of the peer's data. If they end ctx
// because of an error, data may be lost.
func Close(ctx context.Context, c net.Conn) error { return closeAfter(ctx, c, pulse.Silence) }

func closeAfter(ctx context.Context, c net.Conn, silence time.Duration) error {
	if closeWrite(c) {
		wait(ctx, c, silence)
	}
	return c.Close()
}

func wait(ctx context.Context, c net.Conn, silence time.Duration) {
	gone := make(chan struct{})
	go func() { // ends when the connection is closed
		io.Copy(io.Discard, c)
		close(gone)
	}()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for taken := time.Duration(0); taken < patience; {
		select {
		case <-gone:
			return
		case <-ctx.Done():
			select {
			case <-gone:
			case <-time.After(time.Second):
			}
			return
		case <-tick.C:
			taken += checkInterval
			if unsent(c) > 0 {
				taken = 0
			}
			if pulse.IsLost(c, silence) {
				return
			}
		}
	}
}

// closeWrite closes the write direction on each layer of a connection. It returns false if no layer
// supports this.
func closeWrite(c net.Conn) (ok bool) {
	for c != nil {
		if h, half := c.(interface{ CloseWrite() error }); half {
			h.CloseWrite() // an error means that the peer has gone
			ok = true
		}
		c = inner(c)
	}
	return ok
}

func inner(c net.Conn) net.Conn {
	if w, ok := c.(interface{ NetConn() net.Conn }); ok {
		return w.NetConn()
	}
	return nil
}

// unsent returns the number of bytes that the peer has not acknowledged.
func unsent(c net.Conn) (n int) {
	for ; c != nil; c = inner(c) {
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
