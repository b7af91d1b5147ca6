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
	lockMark = "islet\n" // content of a directory's lock file

	// Database is the name of the store's file in the state directory.
	Database = "islet.db"
	// Claims is the parent of the claims' directories in the state directory.
	Claims = "claims"
	// Hooks is the directory in the run directory that contains the state of containers' hooks.
	Hooks = "hooks"
	// Probes is the file in the run directory that keeps the state of probes across a restart of the agent.
	Probes = "probes"
	// Shutdown is the file in the run directory that contains the progress of a shutdown.
	Shutdown = "shutdown"
	// OOM is the file in the run directory that contains the position of the last kill reported by the kernel's OOM
	// killer.
	OOM = "oom"
	// PageHistory is the file in the run directory that contains the readings of the status page.
	PageHistory = "page-history"
	// Devices is the directory in the run directory that contains device nodes for containers.
	Devices = "devices"
)

// Locks are lock files that this process holds open. They prevent a second agent from using the same directories.
type Locks []*os.File

// Lock locks directories, so that no other agent uses them. The kernel releases the locks when the process ends.
func Lock(dirs ...string) (l Locks, err error) {
	for _, dir := range dirs {
		if err := l.Add(dir); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// Add locks another directory.
func (l *Locks) Add(dir string) error {
	f, err := lock(dir)
	if err == nil {
		*l = append(*l, f)
	}
	return err
}

// Relock locks a directory again after its lock file was removed.
func (l *Locks) Relock(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, lockFile)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return l.Add(dir)
}

// Close releases the locks.
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
	if errors.Is(err, unix.EROFS) { // on a read-only disk, a file that exists can still be locked
		f, err = os.Open(filepath.Join(dir, lockFile))
		if errors.Is(err, os.ErrNotExist) {
			f, err = os.Open(dir)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := acquireLock(f); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another agent uses %s: stop it, or choose other directories", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() && fi.Size() == 0 {
		f.WriteString(lockMark) // a full disk must not prevent the start of the agent; see DirsUsed
	}
	return f, nil
}

// A killed process keeps its locks until the kernel has ended it. Until then, acquireLock retries at this interval.
const (
	killedTimeout = 3 * time.Second
	lockRetry     = 20 * time.Millisecond
)

// acquireLock locks a file that another process may be about to release.
func acquireLock(f *os.File) error {
	tick := time.NewTicker(lockRetry)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Since(began) > killedTimeout {
			return err
		}
	}
}
