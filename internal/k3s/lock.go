package k3s

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/regular"
)

// RestoreFile is the name of the file in the state directory with a restore of a backup that must be completed. See edge/backup.
const RestoreFile = "restore.json"

// Lock creates root, and locks it against other commands and against the renewal of certificates until the result is closed. It waits for
// a write of the renewal, and not for another command.
func Lock(root string) (*os.File, error) {
	if err := makeDirectories(root, 0o700); err != nil {
		return nil, err
	}
	return lockWhenFree(root, pause)
}

// LockFiles prevents other commands from replacing the files below root until the result is closed. The caller must not send a request
// before that, because a command may wait for the lock. If root does not exist, the result is nil.
func LockFiles(root string) (*os.File, error) {
	l, err := lock(root, syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return l, err
}

// LockState locks a state directory until the result is closed, so that neither islet setup nor the files of islet join change. It does not
// wait.
func LockState(state string) (*os.File, error) { return lock(state, syscall.LOCK_EX|syscall.LOCK_NB) }

// AwaitState is like LockState, but waits until the lock is free.
func AwaitState(state string) (*os.File, error) { return lock(state, syscall.LOCK_EX) }

// lock locks a directory. A command locks it exclusively. The renewal and a backup share the lock for the time of a write or a read. It is
// not inlined, because it is called in many places.
//
//go:noinline
func lock(dir string, how int) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), how); err != nil {
		d.Close()
		return nil, fmt.Errorf("%s: another islet join, islet restore, islet setup or islet backup is running: %w", dir, err)
	}
	return d, nil
}

// A command waits at most 10 s for shared locks to end. Such a lock is short, because nobody holds it during a request.
const (
	maxPauses = 200
	pauseTime = 50 * time.Millisecond
)

func pause() { time.Sleep(pauseTime) }

// lockWhenFree locks a directory exclusively. While the renewal or a backup shares the lock, it calls the function pause and tries again.
// It does not wait for a command, which may itself wait for a lock of the caller.
func lockWhenFree(dir string, pause func()) (d *os.File, err error) {
	for range maxPauses {
		if d, err = lock(dir, syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return d, nil
		}
		shared, e := lock(dir, syscall.LOCK_SH|syscall.LOCK_NB)
		if e != nil {
			return nil, err
		}
		shared.Close() // otherwise two callers would wait for each other
		pause()
	}
	return nil, err
}

// CheckRestore returns an error if a restore of a backup must be completed in a state directory. That restore replaces what islet join and
// islet setup write.
func CheckRestore(state string) error {
	if _, err := os.Lstat(filepath.Join(state, RestoreFile)); err == nil {
		return errors.New("an islet restore was interrupted: start the agent, which completes it, and repeat the command")
	}
	return nil
}

// A Handle is a Directory in use that was opened. It stays the same when a command replaces the directory.
type Handle struct {
	// Directory is the path of the directory with all symbolic links resolved.
	Directory
	path string // path of the link to the directory
	open *os.File
}

// Open opens the directory in use.
func (d Directory) Open() (*Handle, error) {
	real, err := filepath.EvalSymlinks(string(d))
	if err != nil {
		return nil, err
	}
	f, err := os.Open(real)
	if err != nil {
		return nil, err
	}
	return &Handle{Directory(real), string(d), f}, nil
}

// Close closes the handle.
func (h *Handle) Close() error { return h.open.Close() }

// Replace durably replaces a file of the directory, given by its path, while no command can replace the directory. It does not write a file
// that has not changed. It returns an error, and writes nothing, if a command is running or has replaced the directory since it was opened.
func (h *Handle) Replace(file string, content []byte) error {
	l, err := lock(filepath.Dir(h.path), syscall.LOCK_SH|syscall.LOCK_NB)
	if err != nil {
		return err
	}
	defer l.Close()
	opened, err := h.open.Stat() // an open directory keeps its number, also after its removal
	if err != nil {
		return err
	}
	if now, err := os.Stat(h.path); err != nil || !os.SameFile(now, opened) {
		return errors.New(h.path + " was replaced meanwhile")
	}
	if old, err := regular.Read(file, maxFile); err == nil && string(old) == string(content) {
		return nil
	}
	return durable.Write(file, content, 0o600)
}
