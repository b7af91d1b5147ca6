package volatile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/islet-edge/islet/internal/readonly"
)

// seedDirectory copies a directory's regular files, and creates its subdirectories down to the given number of levels. At the
// last level it creates symbolic links instead. It skips special files. A file above the last level that the disk
// cannot read is missing in the copy: the database of the layers. The record of a container must not be missing.
func seedDirectory(from, to string, levels int) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		switch {
		case e.Type().IsRegular() && levels == 1:
			err = copyFile(source, target)
		case e.Type().IsRegular():
			err = seedFile(source, target, copyFile)
		case !e.IsDir():
			continue
		case levels == 1:
			err = os.Symlink(source, target)
		default:
			err = seedDirectory(source, target, levels-1)
		}
		if err != nil {
			return err
		}
	}
	return copyMode(from, to)
}

// seedFile copies a file, and leaves it out if the disk cannot read it at the second attempt either.
func seedFile(from, to string, copy func(from, to string) error) error {
	err := readonly.TryTwice(func() error {
		err := copy(from, to)
		if removeErr := removePart(err, to); removeErr != nil {
			return removeErr
		}
		return err
	})
	if readonly.IsDiskFault(err) {
		return nil
	}
	return err
}

// removePart removes the incomplete target of a copy that has ended with err, if err is a disk fault.
func removePart(err error, to string) error {
	if !readonly.IsDiskFault(err) {
		return nil
	}
	if err := os.Remove(to); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return copyMode(from, to)
}

// copyMode copies the owner and mode of the source file to the target file.
func copyMode(source, target string) error {
	st, err := os.Stat(source)
	if err != nil {
		return err
	}
	owner := st.Sys().(*syscall.Stat_t)
	return errors.Join(os.Chown(target, int(owner.Uid), int(owner.Gid)), os.Chmod(target, st.Mode()))
}
