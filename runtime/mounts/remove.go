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
	batch = 256 // number of names to read from a directory at once
	// deepest is the maximum number of open directories. A container can nest directories without
	// limit, so directories at a greater depth are moved up before they are removed.
	deepest = 64
	removal = "..islet-removal-" // name of directories that were moved up; a number is appended
)

// RemoveAll removes a file, or a directory with its content. A symlink is removed and not followed.
// A mount point is not removed, and is an error. A missing path is no error.
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

// RemoveAt is like RemoveAll, for a name in an open directory.
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
	top   *os.File // the directory that is being removed
	moved int      // number of directories moved up into top
}

func (r *remover) remove(dir *os.File, name string, depth int) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) { // for a directory, POSIX specifies EPERM and Linux returns EISDIR
		return blocked(name, err)
	}
	unlinked := err
	if err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.ENOTDIR) {
		return blocked(name, unlinked)
	}
	if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return blocked(name, err)
	}
	if depth == deepest {
		return r.moveUp(dir, name)
	}
	d, err := openSame(dir, name)
	if err != nil {
		return blocked(name, err)
	}
	if depth == 0 {
		r.top = d // directories at a great depth are moved into it
	} else {
		defer d.Close()
	}
	if err := r.empty(d, depth); err != nil {
		return err
	}
	if err := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return blocked(name, err)
	}
	return nil
}

// empty removes as much of the content of a directory as possible.
func (r *remover) empty(d *os.File, depth int) error {
	for {
		names, err := d.Readdirnames(batch)
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
		if _, err := d.Seek(0, io.SeekStart); err != nil { // the positions have changed
			return err
		}
	}
}

// moveUp moves a directory at a great depth into the topmost directory, where it is removed later.
func (r *remover) moveUp(dir *os.File, name string) error {
	for {
		r.moved++
		to := removal + fmt.Sprint(r.moved)
		err := unix.Renameat2(int(dir.Fd()), name, int(r.top.Fd()), to, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return blocked(name, err)
		}
		return nil
	}
}

// openSame opens a directory if it is in the same mount as dir.
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

// openOld does the same as openSame on kernels before 5.6.
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

// blocked returns the error for a file that could not be removed.
func blocked(name string, err error) error {
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s is a mount point and was not removed: %w", name, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// RemoveMounted unmounts everything below a directory and then removes the directory like
// RemoveAll. points are the expected mount points. It reads the mount table only if there are other
// mounts, or if one of these is still in use. The table is long on a node with many pods.
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

// unmount unmounts everything at a mount point, unless it is in use. A mount with another mount
// below it is in use. So nothing is unmounted at a peer.
func unmount(point string) {
	for range rounds {
		if unix.Unmount(point, unix.UMOUNT_NOFOLLOW) != nil {
			return
		}
	}
}
