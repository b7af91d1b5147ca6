package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxLocal bounds the connections to the unix socket.
const maxLocal = 64

// ListenLocal opens the unix socket for root and the agent's own user only. A
// socket that a killed agent left behind is replaced; one that is served is not.
func ListenLocal(path string, log *slog.Logger) (net.Listener, error) {
	return ListenUnix(path, maxLocal, log)
}

// ListenUnix is ListenLocal for another number of connections.
func ListenUnix(path string, most int, log *slog.Logger) (net.Listener, error) {
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("listen on %s: another process answers there; stop it, or choose another path (--run-dir, criSocket)", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	// Bound under a name of its own and only then in its place, so that it is
	// never there with other permissions.
	hidden := path + ".new"
	os.Remove(hidden)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	if err = os.Chmod(hidden, 0o600); err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		ln.Close()
		os.Remove(hidden)
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &localListener{UnixListener: ln, path: path, log: log, slots: make(chan struct{}, most)}, nil
}

// A localListener accepts from root and the agent's own user, a bounded number
// at a time.
type localListener struct {
	*net.UnixListener
	path  string
	log   *slog.Logger
	slots chan struct{}
}

func (l *localListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if err := allowed(c); err != nil {
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

// Close also removes the socket.
func (l *localListener) Close() error {
	err := l.UnixListener.Close()
	if err == nil {
		os.Remove(l.path)
	}
	return err
}

func allowed(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return cerr
	}
	if err != nil {
		return fmt.Errorf("ask who the peer is: %w", err)
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("peer is user %d (process %d)", cred.Uid, cred.Pid)
	}
	return nil
}

// A localConn gives its slot back once.
type localConn struct {
	*net.UnixConn
	slots chan struct{}
	once  sync.Once
}

func (c *localConn) Close() error {
	c.once.Do(func() { <-c.slots })
	return c.UnixConn.Close()
}
