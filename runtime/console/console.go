package console

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// socketName is the name of the socket in its directory.
const socketName = "tty"

var errNone = errors.New("the OCI runtime sent no terminal")

// A Socket is a unix socket through which the OCI runtime sends a terminal.
type Socket struct {
	path string
	l    *net.UnixListener

	mu  sync.Mutex
	dir *os.File // nil when the socket was closed
}

// Listen opens a socket in a directory. Close removes it.
func Listen(directory string) (*Socket, error) {
	dir, err := os.Open(directory)
	if err != nil {
		return nil, err
	}
	os.Remove(filepath.Join(directory, socketName))
	// The path of the directory may be longer than a socket address can be.
	path := "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + socketName
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("open console socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	return &Socket{path: path, l: l, dir: dir}, nil
}

// Path returns the path of the socket. The path exists until Close, and is short enough for a socket address.
func (s *Socket) Path() string { return s.path }

// Close closes and removes the socket. It does nothing if s is nil or was closed.
func (s *Socket) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == nil {
		return
	}
	s.l.Close()
	os.Remove(filepath.Join(s.dir.Name(), socketName))
	s.dir.Close()
	s.dir = nil
}

// End must be called when the OCI runtime has ended, if Receive may still be waiting. If the OCI runtime has not connected, Receive then
// returns an error. A terminal that the OCI runtime has sent is received, because connections are accepted in their order.
func (s *Socket) End() {
	s.mu.Lock() // after Close, the path may belong to another socket
	defer s.mu.Unlock()
	if s.dir == nil {
		return
	}
	if c, err := net.Dial("unix", s.path); err == nil {
		c.Close()
	}
}

// Receive accepts one connection, receives the master of the terminal and closes the socket. The master is non-blocking.
func (s *Socket) Receive(timeout time.Duration) (*os.File, error) {
	defer s.Close()
	deadline := time.Now().Add(timeout)
	s.l.SetDeadline(deadline)
	c, err := s.l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(deadline)
	name, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(name, oob) // the descriptor is closed on exec
	if err != nil {
		return nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil || len(fds) == 0 {
			continue
		}
		if err := unix.SetNonblock(fds[0], true); err != nil {
			unix.Close(fds[0])
			return nil, err
		}
		return os.NewFile(uintptr(fds[0]), "terminal"), nil
	}
	return nil, errNone
}

// Resize sets the size of a terminal. It does nothing if the terminal was closed.
func Resize(terminal *os.File, width, height uint16) {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	})
}
