package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Write creates or replaces a file. After an error, either the old or the new file exists. Write first writes the data
// to the new file TemporaryPath(path). If a killed process has left such a new file, Write removes it. Write does not
// open the old file, because opening a FIFO would block. Concurrent writes of the same file are not allowed.
func Write(path string, data []byte, mode fs.FileMode) error {
	next := TemporaryPath(path)
	_ = syscall.Unlink(next) // if this fails, OpenFile returns an error
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()) // Chmod: the umask must not apply
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return SyncDir(filepath.Dir(path))
}

// TemporaryPath returns the path of the new file to which Write first writes the data of a file: ".name.new" in the same
// directory, for a file "name".
func TemporaryPath(path string) string {
	dir, name := filepath.Split(path)
	return filepath.Join(dir, "."+name+".new")
}

// SyncDir syncs a directory, so that creations, removals and renames in it survive a power loss.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
