package pulse

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Silence is the usual time without an acknowledgement after which a peer counts as lost.
const Silence = 30 * time.Second

// minUnanswered is the minimum number of consecutive unacknowledged retransmissions and window
// probes of a lost peer. One is not enough, because a single packet may be lost, and the probes of
// a closed window are minutes apart.
const minUnanswered = 2

// IsLost reports whether the peer of a TCP connection counts as lost. A peer is lost if it has sent
// no packet for the given time, not even an acknowledgement, although several packets were sent to
// the peer. It returns false while no packet is unacknowledged, and for a connection that is not
// TCP. The connection may be wrapped in types with a NetConn method.
func IsLost(c net.Conn, silence time.Duration) (lost bool) {
	if raw, err := rawConn(c); raw != nil && err == nil {
		raw.Control(func(fd uintptr) { lost = lostSocket(int(fd), silence) })
	}
	return lost
}

// rawConn returns the socket of a connection. It returns nil if the connection has no socket.
func rawConn(c net.Conn) (syscall.RawConn, error) {
	for c != nil {
		if s, ok := c.(syscall.Conn); ok {
			return s.SyscallConn()
		}
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil, nil
		}
		c = w.NetConn()
	}
	return nil, nil
}

func lostSocket(fd int, silence time.Duration) bool {
	i, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
	if err != nil {
		return false
	}
	silent := time.Duration(min(i.Last_ack_recv, i.Last_data_recv)) * time.Millisecond
	return int(i.Retransmits)+int(i.Probes) >= minUnanswered && silent >= silence
}
