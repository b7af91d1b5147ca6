package mounts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	batchSize = 256 // number of names in one read of a directory
	// maxOpen is the maximum number of open directories. Containers can create directories of any
	// depth. Directories at a greater depth than maxOpen are moved up before they are removed.
	maxOpen       = 64
	removalPrefix = "..islet-removal-" // name prefix of directories that were moved up; a number follows
)

// RemoveAll removes a file, or a directory with its content. It removes a symlink without following
// it. A mount point is an error and is not removed. A missing path is not an error.
func RemoveAll(path string) error {
	path = filepath.Clean(path)
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	defer dir.Close()
	return RemoveAt(dir, filepath.Base(path))
}

// RemoveAt does the same as RemoveAll for a name in an open directory.
func RemoveAt(dir *os.File, name string) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("remove %q in %s: not a file name", name, dir.Name())
	}
	r := remover{}
	defer func() {
		if r.top != nil {
			r.top.Close()
		}
	}()
	if err := r.remove(dir, name, 0); err != nil {
		return fmt.Errorf("remove %s: %w", filepath.Join(dir.Name(), name), err)
	}
	return nil
}

// A remover removes one directory tree.
type remover struct {
	top   *os.File // topmost directory of the tree
	moved int      // number of directories that were moved to top
}

func (r *remover) remove(dir *os.File, name string, depth int) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) { // unlink of a directory: EPERM in POSIX, EISDIR in Linux
		return removeError(name, err)
	}
	unlinked := err
	if err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.ENOTDIR) {
		return removeError(name, unlinked)
	}
	if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return removeError(name, err)
	}
	if depth == maxOpen {
		return r.moveUp(dir, name)
	}
	d, err := openSame(dir, name)
	if err != nil {
		return removeError(name, err)
	}
	if depth == 0 {
		r.top = d // closed by RemoveAt
	} else {
		defer d.Close()
	}
	if err := r.removeContent(d, depth); err != nil {
		return err
	}
	if err := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return removeError(name, err)
	}
	return nil
}

// removeContent removes the content of a directory. It continues with the other names of a batch after an
// error.
func (r *remover) removeContent(d *os.File, depth int) error {
	for {
		names, err := d.Readdirnames(batchSize)
		if errors.Is(err, io.EOF) || err == nil && len(names) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		var errs []error
		for _, n := range names {
			if err := r.remove(d, n, depth+1); err != nil {
				errs = append(errs, err)
			}
		}
		if len(errs) > 0 {
			return errs[0]
		}
		if _, err := d.Seek(0, io.SeekStart); err != nil { // removing names has changed the positions
			return err
		}
	}
}

// moveUp moves a directory at the maximum depth to the topmost directory, where it is removed
// later.
func (r *remover) moveUp(dir *os.File, name string) error {
	for {
		r.moved++
		to := removalPrefix + fmt.Sprint(r.moved)
		err := unix.Renameat2(int(dir.Fd()), name, int(r.top.Fd()), to, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return removeError(name, err)
		}
		return nil
	}
}

// openSame opens a directory by its name in dir. A mount point is an error.
func openSame(dir *os.File, name string) (*os.File, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	}
	fd, err := unix.Openat2(int(dir.Fd()), name, how)
	if errors.Is(err, unix.ENOSYS) {
		return openOld(dir, name)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openOld implements openSame for kernels before 5.6.
func openOld(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(fd), name)
	there, err := mountOf(d)
	here, err2 := mountOf(dir)
	if err = errors.Join(err, err2); err == nil && here != there {
		err = unix.EXDEV
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// mountOf returns the ID of the mount that contains an open file.
func mountOf(f *os.File) (string, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(info)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", errors.New("the kernel reports no mount ID for an open file")
}

// removeError returns the error for a name that could not be removed.
func removeError(name string, err error) error {
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s is a mount point and was not removed: %w", name, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// RemoveMounted unmounts all mounts below a directory and then removes the directory like RemoveAll. The caller passes the expected mount
// points. RemoveMounted reads the mount table, which is long on a node with many pods, only if there are other mounts or if one of the
// expected mounts is in use.
func RemoveMounted(dir string, points []string) error {
	for _, p := range points {
		unmount(p)
	}
	err := RemoveAll(dir)
	if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := DetachBelow(dir); err != nil {
		return err
	}
	return RemoveAll(dir)
}

// unmount unmounts the mounts at a mount point until one is in use. A mount with another mount
// below it counts as in use, so unmounting never propagates to a peer.
func unmount(point string) {
	for range maxRounds {
		if unix.Unmount(point, unix.UMOUNT_NOFOLLOW) != nil {
			return
		}
	}
}
