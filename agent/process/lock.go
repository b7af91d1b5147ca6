package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	lockFile = "lock"
	lockMark = "islet\n" // in the lock of a directory that an agent uses

	// Database is the store's file in the state directory.
	Database = "islet.db"
	// Claims is the folder of the directories of claims in the state directory.
	Claims = "claims"
	// Hooks is the directory in the run directory for what is known of containers' hooks.
	Hooks = "hooks"
	// Probes is the file there for what a restart must not forget of probes.
	Probes = "probes"
	// Shutdown is the file there that says how far the end of pods with the machine is.
	Shutdown = "shutdown"
	// OOM is the file there that says which of the kernel's kills were told.
	OOM = "oom"
	// Devices is a directory of device nodes for containers, in the run directory.
	Devices = "devices"
)

// Lock takes a directory for this process; the kernel gives it back when the
// process ends, however it ends.
func Lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, unix.EROFS) { // a disk that takes no writes: what is there can be locked all the same
		f, err = os.Open(filepath.Join(dir, lockFile))
		if errors.Is(err, os.ErrNotExist) {
			f, err = os.Open(dir)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another agent uses %s: stop it, or choose other directories", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() && fi.Size() == 0 {
		f.WriteString(lockMark) // a full disk is no reason not to start; see Used
	}
	return f, nil
}
