package volatile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/readonly"
)

// A seeder copies directories from a disk that may not return all of them. A disk fault never prevents the copy. The functions read the
// disk.
type seeder struct {
	readDir  func(dir string) ([]fs.DirEntry, error)
	copyFile func(from, to string) error
	stat     func(path string) (fs.FileInfo, error)

	unread []string // files and directories with a disk fault
}

func newSeeder() *seeder { return &seeder{readDir: os.ReadDir, copyFile: copyFile, stat: os.Stat} }

// seedDirectory copies a directory's regular files, and creates its subdirectories down to the given number of levels. At the
// last level it creates symbolic links instead. It skips special files.
//
// A file at the last level that the disk cannot read, such as the record of a container, becomes a symbolic link too: a missing record
// would mean that there is no such container. A file above the last level is missing in the copy: the database of the layers. Of a
// directory that cannot be read, the copy has the entries that were listed.
func (s *seeder) seedDirectory(from, to string, levels int) error {
	var entries []fs.DirEntry
	err := s.read(from, func() (err error) {
		entries, err = s.readDir(from)
		return err
	})
	if err != nil && !readonly.IsDiskFault(err) {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		var err error
		switch {
		case e.Type().IsRegular():
			err = s.seedFile(source, target, levels == 1)
		case !e.IsDir():
			continue
		case levels == 1:
			err = os.Symlink(source, target)
		default:
			err = s.seedDirectory(source, target, levels-1)
		}
		if err != nil {
			return err
		}
	}
	info, err := s.readStat(from)
	if readonly.IsDiskFault(err) { // only root can use the copy
		return nil
	}
	if err != nil {
		return err
	}
	return setMode(to, info)
}

// makePlace creates a separate directory and those above it in the upper layer of the overlay, and hides what the disk has there. The
// overlay then does not look up the separate directory on the disk, which may not return it. A directory above it shows the disk's files,
// unless the disk does not return that directory.
func (s *seeder) makePlace(disk, upper, name string) error {
	for i, r := range name + "/" {
		if r != '/' {
			continue
		}
		path := filepath.Join(upper, name[:i])
		if err := os.Mkdir(path, 0o700); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return err
		}
		if i < len(name) {
			info, err := s.readStat(filepath.Join(disk, name[:i]))
			if err == nil {
				err = setMode(path, info)
			}
			if !readonly.IsDiskFault(err) {
				if err != nil {
					return err
				}
				continue
			}
		}
		if err := unix.Setxattr(path, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
			return fmt.Errorf("hide the directory below %s: %w", path, err)
		}
	}
	return nil
}

func (s *seeder) readStat(path string) (info fs.FileInfo, err error) {
	err = s.read(path, func() (err error) {
		info, err = s.stat(path)
		return err
	})
	return info, err
}

// seedFile copies a file. If the disk cannot read it, seedFile makes a symbolic link to it, or leaves it out.
func (s *seeder) seedFile(from, to string, link bool) error {
	err := s.read(from, func() error {
		err := s.copyFile(from, to)
		if removeErr := removePart(err, to); removeErr != nil {
			return removeErr
		}
		return err
	})
	if !readonly.IsDiskFault(err) {
		return err
	}
	if link {
		return os.Symlink(from, to)
	}
	return nil
}

// maxPauses is the maximum number of faults after which read pauses. A disk may return nothing at all.
const maxPauses = 10

// read calls a function that reads a path, and calls it again after a disk fault. It notes a path that cannot be read.
func (s *seeder) read(path string, f func() error) error {
	try := readonly.TryTwice
	if len(s.unread) >= maxPauses {
		try = func(f func() error) error { return f() }
	}
	err := try(f)
	if readonly.IsDiskFault(err) {
		s.unread = append(s.unread, path)
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
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	return setMode(target, info)
}

// setMode sets the owner and mode of a file.
func setMode(target string, info fs.FileInfo) error {
	owner := info.Sys().(*syscall.Stat_t)
	return errors.Join(os.Chown(target, int(owner.Uid), int(owner.Gid)), os.Chmod(target, info.Mode()))
}
