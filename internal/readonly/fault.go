package readonly

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Fault reports whether an error says that a disk does not give what is on it, or takes nothing:
// it failed to read or write (EIO), its file system's structures or checksums are damaged
// (EBADMSG and EUCLEAN: ext4 and xfs return them as EFSBADCRC and EFSCORRUPTED), or it takes no
// writes (EROFS). One file or directory may be damaged where all others are whole, so whoever
// goes through many leaves that one out, reports it, and goes on. A full disk is not meant.
func Fault(err error) bool {
	for _, e := range []error{unix.EIO, unix.EBADMSG, unix.EUCLEAN, unix.EROFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// MkdirAll is os.MkdirAll with the right error for a directory that is there and cannot be read:
// that of the disk, for Fault, where os.MkdirAll says that the file exists.
func MkdirAll(dir string, mode os.FileMode) error {
	err := os.MkdirAll(dir, mode)
	if errors.Is(err, os.ErrExist) {
		if _, why := os.Lstat(dir); why != nil {
			return why
		}
	}
	return err
}
