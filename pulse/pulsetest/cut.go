package pulsetest

import (
	"context"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Dial connects by TCP. The connection sends nothing by itself, so that it can vanish.
func Dial(t testing.TB, to string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{KeepAlive: -1, Control: small}
	c, err := d.DialContext(context.Background(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// small leaves little room on the way: what is not taken waits in the sender.
func small(_, _ string, c syscall.RawConn) (err error) {
	c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
	return err
}

// Cut makes a connection vanish: its socket gets no packet any more and so acknowledges
// none, and says no goodbye, as if the link were cut.
func Cut(t testing.TB, c *net.TCPConn) {
	t.Helper()
	none := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	filter := unix.SockFprog{Len: 1, Filter: &none[0]}
	raw, err := c.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) {
			err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &filter)
		})
	}
	if err != nil {
		t.Fatalf("cut the link of %s: %v", c.LocalAddr(), err)
	}
}
