//go:build !linux

package support

import (
	"errors"
	"net"
)

// peerPID returns an error, because no agent runs on this system.
func peerPID(*net.UnixConn) (int, error) { return 0, errors.ErrUnsupported }
