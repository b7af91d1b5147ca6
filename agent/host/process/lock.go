package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

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
	// Shutdown is the file there that records how far a shutdown of the machine has ended the pods.
	Shutdown = "shutdown"
	// OOM is the file there that records which of the kernel's kills have been reported.
	OOM = "oom"
	// Devices is a directory of device nodes for containers, in the run directory.
	Devices = "devices"
)

// Locks are directories that this process has taken.
type Locks []*os.File

// Lock takes directories for this process; the kernel gives them back when the
// process ends, however it ends.
func Lock(dirs ...string) (l Locks, err error) {
	for _, dir := range dirs {
		if err := l.Add(dir); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// Add takes one more directory.
func (l *Locks) Add(dir string) error {
	f, err := lock(dir)
	if err == nil {
		*l = append(*l, f)
	}
	return err
}

// Retake takes a directory again whose lock somebody removed while this process runs.
func (l *Locks) Retake(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, lockFile)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return l.Add(dir)
}

// Close gives them back.
func (l *Locks) Close() error {
	var errs []error
	for _, f := range *l {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func lock(dir string) (*os.File, error) {
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
	if err := take(f); err != nil {
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

// A process that was killed keeps its locks until the kernel has ended it: take waits so long,
// and tries so often.
const (
	dying = 3 * time.Second
	again = 20 * time.Millisecond
)

// take locks a file, which another process may be about to give back.
func take(f *os.File) error {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Since(began) > dying {
			return err
		}
	}
}
