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
// a hostile one does not lock out an API server.
const (
	maxConns       = 256
	maxConnsFromIP = maxConns / 2
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

	mu   sync.Mutex
	all  int
	from map[netip.Addr]int
	full bool // was told of
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		if addr := peer.Addr().Unmap(); l.enter(addr) {
			return &boundedConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(addr) })}, nil
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

func (l *boundedListener) leave(addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.from[addr]--; l.from[addr] == 0 {
		delete(l.from, addr)
	}
	l.full = l.full && l.all > maxConns/4 // a new flood is worth a new line
}

// A boundedConn gives its place back once.
type boundedConn struct {
	net.Conn
	leave func()
}

func (c *boundedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
