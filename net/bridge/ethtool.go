package bridge

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolLink queries the state of a link with ETHTOOL_GLINK. The purpose is a side effect: before the kernel answers this query, it
// processes pending carrier changes. No other query has this effect.
func ethtoolLink(fd int, name string) error {
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GLINK}
	var request struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	request.data = unsafe.Pointer(&value)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("query the link state of %s: %w", name, errno)
	}
	return nil
}
