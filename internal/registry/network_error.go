package registry

import (
	"errors"
	"net"
	"syscall"
)

// IsNetworkError reports whether err is an error of a network connection. An error of a file is not one, although the error number in it
// has the methods of a net.Error.
func IsNetworkError(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	_, file := network.(syscall.Errno) // the error of a connection contains a net.Error around the number
	return ok && !file
}
