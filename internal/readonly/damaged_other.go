//go:build !linux

package readonly

import "golang.org/x/sys/unix"

// errDamaged is the error of a damaged file system. Other systems than Linux have no error of their own for it.
const errDamaged = unix.EIO
