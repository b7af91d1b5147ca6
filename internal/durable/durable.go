package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Write creates or replaces a file. After an error the old file may still be there. The data is first written to a new
// file in the same directory, with a dot before the name and ".new" after it. A file that already has that name, left
// by a killed process, is removed. It is never opened, because opening a FIFO would block. Concurrent writes of the
// same file are not allowed.
func Write(path string, data []byte, mode fs.FileMode) error {
	dir, name := filepath.Split(path)
	next := filepath.Join(dir, "."+name+".new")
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
	return Dir(filepath.Dir(path))
}

// Dir syncs a directory, so that creations, removals and renames in it survive a power loss.
func Dir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
