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

// errTaken is the error for a socket on which another process accepts connections.
var errTaken = errors.New("another process serves this socket; stop it, or choose another path (--run-dir, --root-dir, criSocket)")

// A Listener accepts connections at its path until Close. It is safe for concurrent use.
type Listener struct {
	path    string
	sockets *Sockets

	mu      sync.Mutex
	current *net.UnixListener // nil if the socket could not be created yet because of a disk fault
	file    os.FileInfo       // the file of the socket
	closed  bool
	ready   chan struct{} // closed when the first socket exists, and by Close
}

// Listen creates a socket and its parent directories. It replaces a socket that a killed agent has
// left. If the disk fails (see readonly.IsDiskFault) or is full, it logs the error and returns a Listener
// whose socket Run creates later. So an unreadable directory does not prevent the start.
func (s *Sockets) Listen(path string) (*Listener, error) {
	l := &Listener{path: path, sockets: s, ready: make(chan struct{})}
	current, file, err := listenAt(path)
	switch {
	case err == nil:
		l.setSocket(current, file)
	case readonly.IsDiskFault(err), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		s.Log.Error("cannot create a socket of islet yet", "error", err)
	default:
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, l)
	return l, nil
}

func listenAt(path string) (*net.UnixListener, os.FileInfo, error) {
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
	// Rename the socket to its path after chmod, so that clients never see it with other permissions.
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

// setSocket replaces the socket. The caller holds mu, unless no other goroutine has a reference to
// l yet.
func (l *Listener) setSocket(current *net.UnixListener, file os.FileInfo) {
	if l.current == nil {
		close(l.ready)
	}
	l.current, l.file = current, file
}

// Accept returns a *net.UnixConn. It blocks until the socket exists.
func (l *Listener) Accept() (net.Conn, error) {
	<-l.ready
	for {
		l.mu.Lock()
		current := l.current
		l.mu.Unlock()
		if current == nil {
			return nil, net.ErrClosed
		}
		c, err := current.AcceptUnix()
		if err == nil {
			return c, nil
		}
		l.mu.Lock()
		replaced := l.current != current && !l.closed
		l.mu.Unlock()
		if !replaced {
			return nil, err
		}
	}
}

// Close ends the Listener and removes the socket, unless another file is at its path.
func (l *Listener) Close() error {
	l.sockets.forget(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		if !l.closed {
			l.closed = true
			close(l.ready)
		}
		return nil
	}
	l.closed = true
	err := l.current.Close()
	if exists, _ := l.exists(); err == nil && exists {
		os.Remove(l.path)
	}
	return err
}

// Addr returns the socket's path.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

func (s *Sockets) forget(l *Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.listeners {
		if s.listeners[i] == l {
			s.listeners = append(s.listeners[:i:i], s.listeners[i+1:]...)
			return
		}
	}
}

func (l *Listener) existsOrClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	exists, _ := l.exists()
	return exists || l.closed
}

// exists reports whether the socket's file is at its path. The caller holds mu.
func (l *Listener) exists() (bool, error) {
	fi, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(fi, l.file), err
}

// restore creates the socket again if the socket is missing. It reports whether it has created the socket. It calls the
// function lost before it creates the socket.
func (l *Listener) restore(lost func() error) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, nil
	}
	if exists, err := l.exists(); exists || err != nil {
		return false, err
	}
	if err := lost(); err != nil {
		return false, err
	}
	current, file, err := listenAt(l.path)
	if err != nil {
		return false, err
	}
	if l.current != nil {
		l.current.Close() // no client can reach the old socket any more; Accept continues with the new one
	}
	l.setSocket(current, file)
	return true, nil
}
