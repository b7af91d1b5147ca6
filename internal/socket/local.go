package socket

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ListenLocal is like Listen, but its listener accepts only root and the agent's own user,
// and at most the given number of concurrent connections. It closes other connections at once.
func (s *Sockets) ListenLocal(path string, most int) (net.Listener, error) {
	ln, err := s.Listen(path)
	if err != nil {
		return nil, err
	}
	return &localListener{Listener: ln, path: path, log: s.Log, slots: make(chan struct{}, most)}, nil
}

// A localListener limits the number of connections and checks the user of each peer.
type localListener struct {
	*Listener
	path  string
	log   *slog.Logger
	slots chan struct{}
}

func (l *localListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := conn.(*net.UnixConn)
		if err := checkPeer(c); err != nil {
			l.log.Warn("refused a connection", "socket", l.path, "error", err)
			c.Close()
			continue
		}
		select {
		case l.slots <- struct{}{}:
			return &localConn{UnixConn: c, slots: l.slots}, nil
		default:
			l.log.Warn("refused a connection: too many", "socket", l.path, "limit", cap(l.slots))
			c.Close()
		}
	}
}

func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return cerr
	}
	if err != nil {
		return fmt.Errorf("read the peer's credentials: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("peer is user %d (process %d)", cred.Uid, cred.Pid)
	}
	return nil
}

// A localConn is a connection that occupies a slot of its listener until Close.
type localConn struct {
	*net.UnixConn
	slots chan struct{}
	once  sync.Once
}

func (c *localConn) Close() error {
	c.once.Do(func() { <-c.slots })
	return c.UnixConn.Close()
}
