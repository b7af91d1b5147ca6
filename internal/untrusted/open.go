package untrusted

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotRegular is the error for a directory, FIFO, device, socket or symlink.
var ErrNotRegular = errors.New("not a regular file")

// ErrFIFO is the error for a FIFO. It wraps ErrNotRegular. A plain open of a FIFO may block forever.
var ErrFIFO = fmt.Errorf("%w but a FIFO", ErrNotRegular)

// Open opens a regular file for reading. Its name is relative to the directory root. If the last component of the name
// is a symlink, Open returns ErrNotRegular. If an earlier component is a symlink, Open returns another error. The
// directory root is trusted and may be a symlink.
func Open(root, name string) (*os.File, error) { return OpenFile(root, name, os.O_RDONLY, 0) }

// OpenFile is like Open with the flags of os.OpenFile. os.O_CREATE creates a missing file with the mode perm
// in an existing directory. os.O_TRUNC truncates regular files only.
func OpenFile(root, name string, flag int, perm fs.FileMode) (*os.File, error) {
	w, err := startWalk(root, name, refuseLinks)
	var f *os.File
	if err == nil {
		f, err = w.openFile(name, flag, perm)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s below %s: %w", name, root, err)
	}
	return f, nil
}

// OpenDir opens a directory, whose name is relative to the directory root, without following symlinks. The caller can
// list the directory, and access the files in it relative to the descriptor.
func OpenDir(root, name string) (*os.File, error) {
	f, err := openDir(root, name, refuseLinks)
	if err != nil {
		return nil, fmt.Errorf("open directory %s below %s: %w", name, root, err)
	}
	return f, nil
}

// OpenDirInRoot opens a directory by its name in a chroot to root. It follows symlinks, and resolves the targets of
// the symlinks below root.
func OpenDirInRoot(root, name string) (*os.File, error) {
	f, err := openDir(root, name, followLinks)
	if err != nil {
		return nil, fmt.Errorf("open directory %s in the root %s: %w", name, root, err)
	}
	return f, nil
}

func openDir(root, name string, on linkMode) (*os.File, error) {
	w, err := startWalk(root, name, on)
	if err != nil {
		return nil, err
	}
	defer w.close()
	path, _, err := w.resolve()
	if err != nil {
		return nil, err
	}
	defer unix.Close(path)
	fd, err := unix.Openat(path, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// OpenInRoot opens a regular file for reading by its name in a chroot to root. It follows symlinks, and resolves the
// targets of the symlinks below root.
func OpenInRoot(root, name string) (*os.File, error) {
	return OpenAcrossMounts(root, name, nil)
}

// OpenAcrossMounts is like OpenInRoot. Each time the walk enters another mount, OpenAcrossMounts first calls entered with a path of the
// mount's root, before it accesses the file system of the mount. Another process can also use this path while entered runs. The path
// contains no name that the owner of the files can change.
func OpenAcrossMounts(root, name string, entered func(path string)) (*os.File, error) {
	w, err := startWalk(root, name, followLinks)
	var f *os.File
	if err == nil {
		w.entered = entered
		f, err = w.openFile(name, os.O_RDONLY, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s in the root %s: %w", name, root, err)
	}
	return f, nil
}

// openFile resolves the name with O_PATH. If the result is a regular file, it opens that same file for I/O. It ends the walk.
func (w *nameWalk) openFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	defer w.close()
	for range maxAttempts {
		fd, last, err := w.resolve()
		if err == nil {
			f, err := reopenFile(fd, name, flag)
			unix.Close(fd)
			return f, err
		}
		if last == "" || flag&os.O_CREATE == 0 || !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
		fd, err = unix.Openat(w.currentDir(), last, flag|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(perm.Perm()))
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, unix.EEXIST) || flag&os.O_EXCL != 0 {
			return nil, err
		}
		w.parts = []string{last} // another process created the file first, so walk again
	}
	return nil, unix.EAGAIN
}

// maxAttempts is the maximum number of attempts of openFile to create a file that other processes
// create and remove at the same time.
const maxAttempts = 8

// reopenFile opens the file of an O_PATH descriptor for I/O.
func reopenFile(path int, name string, flag int) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(path, &st); err != nil {
		return nil, err
	}
	switch kind := st.Mode & unix.S_IFMT; kind {
	case unix.S_IFREG:
	case unix.S_IFIFO:
		return nil, ErrFIFO
	default:
		return nil, fmt.Errorf("%w but %s", ErrNotRegular, kindName(kind))
	}
	if flag&os.O_EXCL != 0 {
		return nil, unix.EEXIST
	}
	// Without O_NONBLOCK, a file lease of another process would delay the open.
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(path), flag&^os.O_CREATE|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func kindName(kind uint32) string {
	switch kind {
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFLNK:
		return "a symlink"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}
