package daemon

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Private makes a directory that root alone can enter, also where an older islet made it
// for all: what containers wrote lies below, and programs that are root's for who runs
// them (CVE-2021-41103).
func Private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() == 0o700 {
		return err
	}
	if err := os.Chmod(dir, 0o700); !errors.Is(err, unix.EROFS) { // nobody can mend that
		return err
	}
	return nil
}
