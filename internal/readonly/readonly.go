package readonly

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Disk reports whether the disk of a directory takes no writes (EROFS), as one that is
// mounted read-only, or that the kernel has stopped writing to after an error: ext4 of
// newer kernels shows that only to who tries (emergency_ro). The try changes nothing but
// a time of the directory. A disk that is full, or forbids it, is not meant.
func Disk(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && errors.Is(unix.Chmod(dir, st.Mode&0o7777), unix.EROFS)
}
