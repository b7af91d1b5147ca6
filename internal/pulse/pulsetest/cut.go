package pulsetest

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dial connects by TCP without keep-alive probes, so the connection is silent when it is idle. Its
// receive buffer is small, so that unread data stays in the sender's buffer.
func Dial(to string) (*net.TCPConn, error) {
	d := net.Dialer{KeepAlive: -1, Control: shrinkBuffer}
	c, err := d.Dial("tcp", to)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// shrinkBuffer sets a small receive buffer.
func shrinkBuffer(_, _ string, c syscall.RawConn) (err error) {
	c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
	return err
}

// Cut makes the local end of a connection look lost to its peer, as if the link were cut. A socket
// filter drops every packet that arrives, so the kernel acknowledges nothing and does not answer a
// FIN.
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
