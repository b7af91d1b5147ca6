package readonly

import (
	"errors"
	"os"
	"time"

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

// IsShortage reports whether an operation failed because the process or the machine had no free file descriptor or memory, or because a
// queue was full. Such an error does not mean that the file or socket is faulty: a later attempt may succeed.
func IsShortage(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// faultPause is the pause of TryTwice. In this time the kernel can reset a USB device.
const faultPause = 2 * time.Second

// TryTwice calls the function read. If read returns a disk fault, TryTwice waits and calls read once more, because a device that was reset
// meanwhile can be read again.
func TryTwice(read func() error) error {
	err := read()
	if IsDiskFault(err) {
		time.Sleep(faultPause)
		err = read()
	}
	return err
}

// MkdirAll is like os.MkdirAll, except for a directory that exists and cannot be read. For such a directory
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
