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
	// patience is how long a peer that has everything may take to hang up.
	patience = 10 * time.Second
	// look is how often it is asked how much the peer has not taken yet.
	look = time.Second
)

// Close closes c once its peer has hung up, or has taken everything and does not hang up, or
// a second after ctx has ended. While the peer has not taken everything it may take as long
// as it answers: one that has vanished (see package pulse) is not waited for. Others may read
// from c at the same time, but get parts of what the peer sends: what they make of it must not
// end ctx.
func Close(ctx context.Context, c net.Conn) error { return closeAfter(ctx, c, pulse.Silence) }

func closeAfter(ctx context.Context, c net.Conn, silence time.Duration) error {
	if closeWrite(c) {
		wait(ctx, c, silence)
	}
	return c.Close()
}

func wait(ctx context.Context, c net.Conn, silence time.Duration) {
	gone := make(chan struct{})
	go func() { // ends with the connection
		io.Copy(io.Discard, c)
		close(gone)
	}()
	tick := time.NewTicker(look)
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
			if taken += look; unsent(c) > 0 {
				taken = 0
			}
			if pulse.Lost(c, silence) {
				return
			}
		}
	}
}

// closeWrite ends our direction on each layer of a connection. It returns false for one that
// has no directions.
func closeWrite(c net.Conn) (ok bool) {
	for c != nil {
		if h, half := c.(interface{ CloseWrite() error }); half {
			h.CloseWrite() // an error: the peer has gone
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

// unsent returns how many bytes the peer has not taken yet.
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
