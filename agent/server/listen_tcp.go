package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bounds of the connections to one port. One address gets a part of them, so that
// a hostile one does not lock out an API server. All sessions of users (exec, attach,
// port-forward) come from the API server's address: once they are allowed they count
// apart.
const (
	maxConns       = 256
	maxConnsFromIP = maxConns / 2
	maxSessions    = 2048
)

// Listen opens a TCP port for what (such as "the kubelet API"). The address need
// not be there yet: a node starts before its network does. field names the
// setting that chooses another port.
func Listen(ctx context.Context, address string, port int32, what, field string, log *slog.Logger) (net.Listener, error) {
	where := net.JoinHostPort(address, strconv.Itoa(int(port)))
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) })
		return errors.Join(cerr, err)
	}}
	ln, err := lc.Listen(ctx, "tcp", where)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s for %s: the port is taken, perhaps by a kubelet or another agent; stop it, or choose another %s", where, what, field)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for %s (%s): %w", what, field, err)
	}
	return &boundedListener{Listener: ln, what: what, log: log, from: map[netip.Addr]int{}}, nil
}

// A boundedListener closes connections that are too many at once.
type boundedListener struct {
	net.Listener
	what string
	log  *slog.Logger

	mu       sync.Mutex
	all      int
	from     map[netip.Addr]int
	sessions int  // allowed, and not among all
	full     bool // was told of
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		if addr := peer.Addr().Unmap(); l.enter(addr) {
			return &boundedConn{Conn: c, l: l, addr: addr}, nil
		}
		c.Close()
	}
}

func (l *boundedListener) enter(addr netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxConns || l.from[addr] >= maxConnsFromIP {
		if !l.full {
			l.log.Warn("refusing connections: too many", "port", l.what, "from", addr, "of it", l.from[addr], "all", l.all)
		}
		l.full = true
		return false
	}
	l.all++
	l.from[addr]++
	return true
}

// leave gives a place back. The caller holds mu.
func (l *boundedListener) leave(addr netip.Addr) {
	l.all--
	if l.from[addr]--; l.from[addr] == 0 {
		delete(l.from, addr)
	}
	l.full = l.full && l.all > maxConns/4 // a new flood is worth a new line
}

// A boundedConn has a place among the connections, or the sessions, until it is closed.
type boundedConn struct {
	net.Conn
	l    *boundedListener
	addr netip.Addr

	// The lock of l guards these.
	session, closed bool
}

func (c *boundedConn) Close() error {
	c.l.mu.Lock()
	switch {
	case c.closed:
	case c.session:
		c.l.sessions--
	default:
		c.l.leave(c.addr)
	}
	c.closed = true
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// allowed makes a connection a session. If there are too many of these it stays among the
// others.
func (c *boundedConn) allowed() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.closed || c.session || c.l.sessions >= maxSessions {
		return
	}
	c.session = true
	c.l.sessions++
	c.l.leave(c.addr)
}
