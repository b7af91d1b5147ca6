package readonly

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// IsDiskFault reports whether an error is a disk fault: a read or write failed (EIO), the file system is
// damaged (EBADMSG and EUCLEAN, the EFSBADCRC and EFSCORRUPTED of ext4 and xfs), or the file system
// is read-only (EROFS). A full disk is not a fault.
//
// The fault may affect a single file or directory. A caller that processes many files or directories should report
// the error and continue with the next one.
func IsDiskFault(err error) bool {
	for _, e := range []error{unix.EIO, unix.EBADMSG, errDamaged, unix.EROFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// MkdirAll does the same as os.MkdirAll, except for a directory that exists and cannot be read. For such a directory
// os.MkdirAll returns the error "file exists". MkdirAll returns the error of the disk, which IsDiskFault recognizes.
func MkdirAll(dir string, mode os.FileMode) error {
	err := os.MkdirAll(dir, mode)
	if errors.Is(err, os.ErrExist) {
		if _, why := os.Lstat(dir); why != nil {
			return why
		}
	}
	return err
}
