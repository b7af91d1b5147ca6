package podvolumes

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// isMountPoint reports whether a file system is mounted at a directory.
func isMountPoint(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Lstat(dir, &here); err != nil {
		return false, fmt.Errorf("stat %s: %w", dir, err)
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return false, fmt.Errorf("stat %s: %w", filepath.Dir(dir), err)
	}
	return here.Dev != above.Dev, nil
}
