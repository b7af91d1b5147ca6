package readonly

import (
	"errors"

	"golang.org/x/sys/unix"
)

// CheckDisk reports whether the file system of a directory is read-only (EROFS). An administrator may have mounted
// the file system read-only, or the kernel may have stopped writing to it after an error. CheckDisk must write to the
// directory, because ext4 of newer kernels reports its emergency_ro state only for a write. So it sets the
// directory's mode to the present mode by chmod. This changes only the directory's change time. If the disk is full,
// or if chmod is denied, CheckDisk returns false.
func CheckDisk(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && errors.Is(unix.Chmod(dir, uint32(st.Mode&0o7777)), unix.EROFS)
}
