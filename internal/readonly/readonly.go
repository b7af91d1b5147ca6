package readonly

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Disk reports whether the file system of a directory is read-only (EROFS), because it was mounted
// read-only or because the kernel stopped writing to it after an error. The test is a chmod to the
// directory's present mode, because ext4 of newer kernels reports its emergency_ro state only for
// an attempted write. The chmod changes only the directory's change time. A disk that is full, or a
// directory whose chmod is denied, does not count as read-only.
func Disk(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && errors.Is(unix.Chmod(dir, st.Mode&0o7777), unix.EROFS)
}
