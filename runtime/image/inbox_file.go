package image

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// archiveFile is a file as it was when it was last dealt with.
type archiveFile struct {
	key    string
	failed bool
	tries  int
	next   time.Time // when to try again after an error; zero: when it changes
	forced bool      // what was imported does not count for the next try either
	free   int64     // bytes of the disk when it was full; else 0
}

// roomAgain is how much more there must be on a disk that was full before an archive
// is tried again at once, in bytes.
const roomAgain = 16 << 20

// due says whether to try again after an error.
func (f *archiveFile) due(disk string) bool {
	if f.next.IsZero() {
		return false
	}
	return !time.Now().Before(f.next) || f.free > 0 && freeBytes(disk) >= f.free+roomAgain
}

// fileKey changes when a file does, without reading it. It is "" for what is no
// file, such as a FIFO.
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

// beingWritten says whether someone has the file open for writing. Where the
// file system cannot tell, a file that changed just now counts as open.
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
