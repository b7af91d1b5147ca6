package daemon

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// CreatePrivateDir creates a directory with mode 0700. It also changes the mode of an existing directory,
// because earlier versions created it with access for all users. The directory contains the files
// of containers, which may include setuid programs (CVE-2021-41103).
func CreatePrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() == 0o700 {
		return err
	}
	if err := os.Chmod(dir, 0o700); !errors.Is(err, unix.EROFS) { // ignore a read-only file system
		return err
	}
	return nil
}
