package readonly

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Fault reports whether an error is a failure of the disk: a read or write failed (EIO), structures
// or checksums of the file system are damaged (EBADMSG and EUCLEAN, which ext4 and xfs return as
// EFSBADCRC and EFSCORRUPTED), or the file system is read-only (EROFS). A full disk is not a fault.
//
// A single file or directory may be damaged while all others are intact. A caller that walks over many of them should
// report the damaged one and continue with the next.
func Fault(err error) bool {
	for _, e := range []error{unix.EIO, unix.EBADMSG, unix.EUCLEAN, unix.EROFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// MkdirAll does the same as os.MkdirAll, except for a directory that exists and cannot be read. For
// such a directory it returns the disk's error, which Fault recognizes. os.MkdirAll would return
// "file exists".
func MkdirAll(dir string, mode os.FileMode) error {
	err := os.MkdirAll(dir, mode)
	if errors.Is(err, os.ErrExist) {
		if _, why := os.Lstat(dir); why != nil {
			return why
		}
	}
	return err
}
