package daemon

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Private creates a directory that only root can enter, and restricts an existing one, which
// earlier versions created for everyone. Below it are containers' files, including setuid programs
// (CVE-2021-41103).
func Private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() == 0o700 {
		return err
	}
	if err := os.Chmod(dir, 0o700); !errors.Is(err, unix.EROFS) { // a read-only file system cannot be changed
		return err
	}
	return nil
}
