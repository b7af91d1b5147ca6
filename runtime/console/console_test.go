package console_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/console"
)

// listen opens a socket in a directory whose path is longer than a socket address.
func listen(t *testing.T) *console.Socket {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := console.Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	return s
}

// TestReceive checks that a terminal is received although the OCI runtime has already ended, and that its size can be set.
func TestReceive(t *testing.T) {
	t.Parallel()
	s := listen(t)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	c, err := net.Dial("unix", s.Path())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.(*net.UnixConn).WriteMsgUnix([]byte("/dev/pts/0"), unix.UnixRights(int(master.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	c.Close()
	s.End()
	tty, err := s.Receive(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s.End() // does nothing after Receive
	console.Resize(tty, 120, 40)
	size, err := unix.IoctlGetWinsize(int(master.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col != 120 || size.Row != 40 {
		t.Errorf("size %v, %v", size, err)
	}
	tty.Close()
	console.Resize(tty, 1, 1) // must not fail
}

// TestNoTerminal checks that Receive returns an error if the OCI runtime has ended without a terminal.
func TestNoTerminal(t *testing.T) {
	t.Parallel()
	s := listen(t)
	go s.End()
	if tty, err := s.Receive(time.Hour); err == nil {
		t.Errorf("received %v", tty)
	}
	var none *console.Socket
	none.Close()
}
