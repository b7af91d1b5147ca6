package support

import (
	"cmp"
	"net"

	"golang.org/x/sys/unix"
)

// peerPID returns the process ID of the program at the other end of a connection.
func peerPID(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var failure error
	err = raw.Control(func(s uintptr) { peer, failure = unix.GetsockoptUcred(int(s), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := cmp.Or(err, failure); err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}
