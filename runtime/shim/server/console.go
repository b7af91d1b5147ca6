package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	consoleName = "tty"
	// terminalTimeout is how long to wait for the terminal from the OCI runtime.
	terminalTimeout = 10 * time.Second
)

// listenConsole opens the console socket in the bundle. The path of the bundle may be longer than a
// socket address can be, so the address is a path in /proc/<pid>/fd.
func listenConsole(bundle string) (*console, error) {
	dir, err := os.Open(bundle)
	if err != nil {
		return nil, err
	}
	os.Remove(filepath.Join(bundle, consoleName))
	path := "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + consoleName
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("open console socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	return &console{path: path, dir: dir, l: l, receiveTerminal: func() (*os.File, error) { return acceptTerminal(l) }}, nil
}

// acceptTerminal accepts one connection and receives the file descriptor of the terminal.
func acceptTerminal(l *net.UnixListener) (*os.File, error) {
	l.SetDeadline(time.Now().Add(terminalTimeout))
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(terminalTimeout))
	name, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(name, oob)
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
		unix.CloseOnExec(fds[0])
		if err := unix.SetNonblock(fds[0], true); err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fds[0]), "terminal"), nil
	}
	return nil, errors.New("the OCI runtime sent no terminal")
}
