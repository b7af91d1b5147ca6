package pulsetest

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dial connects by TCP. The connection sends nothing by itself, so that it can vanish.
func Dial(to string) (*net.TCPConn, error) {
	d := net.Dialer{KeepAlive: -1, Control: small}
	c, err := d.Dial("tcp", to)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// small leaves little room on the way: what is not taken waits in the sender.
func small(_, _ string, c syscall.RawConn) (err error) {
	c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
	return err
}

// Cut makes a connection vanish: its socket gets no packet any more and so acknowledges
// none, and says no goodbye, as if the link were cut.
func Cut(c *net.TCPConn) error {
	none := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	filter := unix.SockFprog{Len: 1, Filter: &none[0]}
	raw, err := c.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) {
			err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &filter)
		})
	}
	return err
}
