package pulse

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Silence is how long a peer may leave everything that it is sent unanswered.
const Silence = 30 * time.Second

// unanswered is how many retransmissions or probes in a row must be lost: a single one may be,
// and those of a window that is closed come minutes apart.
const unanswered = 2

// Lost reports whether the peer of a TCP connection has sent nothing, not even an
// acknowledgement, for so long, although it was asked several times. It is false while nothing
// is on its way to the peer, and for connections that are not TCP. c may be wrapped by types that
// have the method NetConn.
func Lost(c net.Conn, silence time.Duration) (lost bool) {
	for c != nil {
		if s, ok := c.(syscall.Conn); ok {
			raw, err := s.SyscallConn()
			if err != nil {
				return false
			}
			raw.Control(func(fd uintptr) { lost = lostSocket(int(fd), silence) })
			return lost
		}
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return false
		}
		c = w.NetConn()
	}
	return false
}

func lostSocket(fd int, silence time.Duration) bool {
	i, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
	if err != nil {
		return false
	}
	heard := time.Duration(min(i.Last_ack_recv, i.Last_data_recv)) * time.Millisecond
	return int(i.Retransmits)+int(i.Probes) >= unanswered && heard >= silence
}
