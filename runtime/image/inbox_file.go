package image

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// An archiveFile is the state of a file after the last attempt to import it.
type archiveFile struct {
	key    string
	failed bool
	tries  int
	next   time.Time // time of the next attempt after an error; if zero, the next attempt follows a change of the file
	forced bool      // whether the next attempt imports wanted images of an archive that was imported before
	free   int64     // number of free bytes when the disk was full, otherwise 0
	images []string  // names of the images in the archive, or nil if they are not known
}

// maxKnownImages is the maximum number of images of an archive whose names are kept in memory.
const maxKnownImages = 1000

// retrySpace is a number of bytes. An import that failed because of a full disk is tried again at
// once when this number of additional bytes is free.
const retrySpace = 16 << 20

// setFailed plans the next attempt after an error. An archive that caused the error itself is tried again when it has changed.
func (f *archiveFile) setFailed(err error, disk string) {
	f.failed = true
	f.next, f.free = time.Time{}, 0
	if errors.Is(err, syscall.ENOSPC) {
		f.free = max(freeBytes(disk), 1)
	}
	if !errdefs.IsInvalidArgument(err) && !errdefs.IsNotFound(err) {
		f.next = time.Now().Add(min(maxRetry, scanInterval<<min(f.tries, 10)))
		f.tries++
	}
}

// isDue reports whether the next attempt after an error is due.
func (f *archiveFile) isDue(disk string) bool {
	if f.next.IsZero() {
		return false
	}
	return !time.Now().Before(f.next) || f.free > 0 && freeBytes(disk) >= f.free+retrySpace
}

// fileKey returns a key that changes when the file changes. It does not read the file. The key is
// "" if f is not a regular file.
func fileKey(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return "", nil
	}
	return fmt.Sprintf("file:%d:%d:%d:%d", st.Ino, st.Size, info.ModTime().UnixNano(), time.Unix(st.Ctim.Unix()).UnixNano()), nil
}

// beingWritten reports whether a process has the file open for writing. On a file system without
// file leases, it reports whether the file was changed very recently.
func beingWritten(f *os.File) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		return false
	}
	if errors.Is(err, unix.EAGAIN) {
		return true
	}
	info, serr := f.Stat()
	return serr == nil && time.Since(info.ModTime()).Abs() < 2*retryOpen
}
