package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Write makes a file, or replaces the one that is there. After an error the old one may be there
// still. What it writes first has the file's name with a dot before and ".new" behind, in the same
// directory. One that a killed process left, or whatever else has that name and is no directory, is
// removed, and never opened: a pipe would hold up who does. Two must not write the same file at once.
func Write(path string, data []byte, mode fs.FileMode) error {
	dir, name := filepath.Split(path)
	next := filepath.Join(dir, "."+name+".new")
	_ = syscall.Unlink(next) // if that fails the next call says why
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil { // whatever the umask is
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return Dir(filepath.Dir(path))
}

// Dir makes the names in a directory durable: of files that were made there, removed or renamed.
func Dir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
