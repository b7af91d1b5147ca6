package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/readonly"
)

// errTaken is that another process answers at a path.
var errTaken = errors.New("another process answers there; stop it, or choose another path (--run-dir, --root-dir, criSocket)")

// A Listener accepts connections at its path until Close. It is safe for concurrent use.
type Listener struct {
	path string
	of   *Sockets

	mu     sync.Mutex
	now    *net.UnixListener // nil: the disk has not taken a socket yet
	file   os.FileInfo       // of the socket
	closed bool
	first  chan struct{} // closed once there is a socket, and by Close
}

// Listen makes a socket and the directories above it. A socket that a killed agent left
// behind is replaced. If the disk fails (see readonly.Fault) or is full, the error is logged, and
// Run makes the socket once it can: one directory that cannot be read is no reason not to start.
func (s *Sockets) Listen(path string) (*Listener, error) {
	l := &Listener{path: path, of: s, first: make(chan struct{})}
	now, file, err := listen(path)
	switch {
	case err == nil:
		l.set(now, file)
	case readonly.Fault(err), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		s.Log.Error("a socket of islet cannot be made yet", "error", err)
	default:
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, l)
	return l, nil
}

func listen(path string) (*net.UnixListener, os.FileInfo, error) {
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, nil, fmt.Errorf("listen on %s: %w", path, errTaken)
	}
	if err := readonly.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	// Bound under a name of its own and only then in its place, so that it is
	// never there with other permissions.
	hidden := path + ".new"
	os.Remove(hidden)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	ln.SetUnlinkOnClose(false)
	var fi os.FileInfo
	if err = os.Chmod(hidden, 0o600); err == nil {
		if fi, err = os.Lstat(hidden); err == nil {
			err = os.Rename(hidden, path)
		}
	}
	if err != nil {
		ln.Close()
		os.Remove(hidden)
		return nil, nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return ln, fi, nil
}

// set takes a socket. The caller holds mu, or is the only one that knows l.
func (l *Listener) set(now *net.UnixListener, file os.FileInfo) {
	if l.now == nil {
		close(l.first)
	}
	l.now, l.file = now, file
}

// Accept returns a *net.UnixConn.
func (l *Listener) Accept() (net.Conn, error) {
	<-l.first
	for {
		l.mu.Lock()
		now := l.now
		l.mu.Unlock()
		if now == nil {
			return nil, net.ErrClosed
		}
		c, err := now.AcceptUnix()
		if err == nil {
			return c, nil
		}
		l.mu.Lock()
		again := l.now != now && !l.closed
		l.mu.Unlock()
		if !again {
			return nil, err
		}
	}
}

// Close also removes the socket, if it is still this listener's.
func (l *Listener) Close() error {
	l.of.forget(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		if !l.closed {
			l.closed = true
			close(l.first)
		}
		return nil
	}
	l.closed = true
	err := l.now.Close()
	if there, _ := l.there(); err == nil && there {
		os.Remove(l.path)
	}
	return err
}

// Addr is the socket's.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

func (s *Sockets) forget(l *Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if s.all[i] == l {
			s.all = append(s.all[:i:i], s.all[i+1:]...)
			return
		}
	}
}

func (l *Listener) isThere() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	there, _ := l.there()
	return there || l.closed
}

// there reports whether the socket is at its path. The caller holds mu.
func (l *Listener) there() (bool, error) {
	fi, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(fi, l.file), err
}

// restore makes the socket again if it is not there, and reports whether it did.
func (l *Listener) restore(lost func() error) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, nil
	}
	if there, err := l.there(); there || err != nil {
		return false, err
	}
	if err := lost(); err != nil {
		return false, err
	}
	now, file, err := listen(l.path)
	if err != nil {
		return false, err
	}
	if l.now != nil {
		l.now.Close() // nobody can connect to it any more; Accept goes on with the other
	}
	l.set(now, file)
	return true, nil
}
