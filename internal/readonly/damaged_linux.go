package readonly

import "golang.org/x/sys/unix"

// errDamaged is the error of a damaged file system.
const errDamaged = unix.EUCLEAN
