package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/connlimit"
)

// The maximum numbers of connections to one port. Authorized sessions (exec, attach, port-forward) have a
// separate limit, maxSessions, because the sessions of all users come from the API server's address.
const (
	maxConns    = 256
	maxSessions = 2048
)

// Listen opens a TCP port. Two of its parameters are only for messages: the purpose of the port (what), such as "the
// kubelet API", and the name of the setting for the port (field). The host need not have the address yet, because the
// agent may start before the network. Some connections are reserved for the addresses in friends.
func Listen(ctx context.Context, address string, port int32, what, field string, log *slog.Logger,
	friends ...netip.Addr) (*connlimit.Listener, error) {
	where := net.JoinHostPort(address, strconv.Itoa(int(port)))
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) })
		return errors.Join(cerr, err)
	}}
	ln, err := lc.Listen(ctx, "tcp", where)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s for %s: the port is taken, perhaps by a kubelet or another agent; "+
			"stop it, or choose another %s",
			where, what, field)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for %s (%s): %w", what, field, err)
	}
	limits := connlimit.Config{PortName: what, MaxConnections: maxConns, Sessions: maxSessions, Reserved: friends, Log: log}
	return connlimit.Listen(ln, limits), nil
}
