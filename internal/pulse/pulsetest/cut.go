package pulsetest

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dial opens a TCP connection without keep-alive probes, so an idle connection sends no packets.
// The receive buffer is small, so that unread data stays in the sender's buffer.
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

// CutLink simulates a cut link: the peer of the connection gets no more acknowledgements, not even of a
// FIN. A socket filter drops every packet that arrives.
func CutLink(c *net.TCPConn) error {
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
