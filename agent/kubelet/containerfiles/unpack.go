package containerfiles

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/untrusted"
)

// Unpack extracts an archive to a path of the container. All entries of the archive must have the same first component.
// Unpack replaces this component. If the path is a directory or ends with a slash, the replacement is the path with the
// parameter base appended. Otherwise the replacement is the path. Existing files are overwritten, but keep their owner. New
// files belong to the user of the container. This user must have access to all of them.
func (r *Root) Unpack(in io.Reader, to, base string) error {
	return r.user.do(func() error { return r.unpack(in, to, base) })
}

func (r *Root) unpack(in io.Reader, to, base string) error {
	target, err := r.target(to, base)
	if err != nil {
		return err
	}
	archive := tar.NewReader(in)
	top := ""
	for {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		name := path.Clean(head.Name)
		first, rest, _ := strings.Cut(name, "/")
		if path.IsAbs(name) || first == ".." || first == "." || top != "" && first != top {
			return fmt.Errorf("the archive contains the unexpected name %q", head.Name)
		}
		top = first
		if err := r.unpackOne(archive, head, path.Join(target, rest)); err != nil {
			return err
		}
	}
	if top == "" {
		return errors.New("the archive is empty")
	}
	_, err = io.Copy(io.Discard, in) // the padding at the end
	return err
}

// target returns the path that replaces the first component of the names in an archive.
func (r *Root) target(to, base string) (string, error) {
	if base == "" || base == "." || base == ".." || strings.Contains(base, "/") {
		return "", fmt.Errorf("%q is not the name of a file", base)
	}
	dir, err := untrusted.OpenDirInRoot(r.path, to)
	switch {
	case err == nil:
		dir.Close()
		return path.Join("/", to, base), nil
	case strings.HasSuffix(to, "/"):
		return "", withoutRoot(err, to)
	}
	return path.Join("/", to), nil
}

// unpackOne creates one entry. The parent directory is resolved in the container's root, and the last component is never
// followed.
func (r *Root) unpackOne(in io.Reader, head *tar.Header, name string) error {
	if head.Typeflag == tar.TypeReg && isSparse(head) {
		return fmt.Errorf("%s is a sparse file, which is not supported", head.Name)
	}
	parent, base := path.Split(name)
	if base == "" {
		return fmt.Errorf("%s cannot be replaced", name)
	}
	dir, err := untrusted.OpenDirInRoot(r.path, parent)
	if err != nil {
		return withoutRoot(err, parent)
	}
	defer dir.Close()
	fd, mode := int(dir.Fd()), uint32(head.Mode&0o777)
	switch head.Typeflag {
	case tar.TypeDir:
		err = makeDir(fd, base, mode|0o700)
	case tar.TypeReg:
		err = writeFile(fd, base, mode, in)
	case tar.TypeSymlink:
		if err = unix.Unlinkat(fd, base, 0); err == nil || err == unix.ENOENT {
			err = unix.Symlinkat(head.Linkname, fd, base)
		}
	default:
		return fmt.Errorf("%s is neither a file, a directory nor a symbolic link", head.Name)
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

// isSparse reports whether a file in the archive has holes. Such a file could be far larger than
// the archive.
func isSparse(head *tar.Header) bool {
	for key := range head.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// makeDir creates a directory. An existing directory, or a symlink to one, is not changed.
func makeDir(dir int, name string, mode uint32) error {
	if err := unix.Mkdirat(dir, name, mode); err != unix.EEXIST {
		return err
	}
	return nil // if the existing file is not a directory, the entries below it fail
}

// writeFile creates or overwrites a regular file.
func writeFile(dir int, name string, mode uint32, in io.Reader) error {
	const flags = unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags|unix.O_CREAT|unix.O_EXCL, mode)
	exists := err == unix.EEXIST
	if exists {
		fd, err = openRegular(dir, name, flags)
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	if exists {
		err = unix.Ftruncate(fd, 0)
	}
	if err == nil {
		_, err = io.Copy(f, in)
	}
	return errors.Join(err, f.Close())
}

// openRegular opens an existing regular file. It never opens a device or a FIFO, because opening one may already
// have an effect.
func openRegular(dir int, name string, flags int) (fd int, err error) {
	path, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(path)
	var st unix.Stat_t
	if err := unix.Fstat(path, &st); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, untrusted.ErrNotRegular
	}
	return unix.Open("/proc/self/fd/"+strconv.Itoa(path), flags&^unix.O_NOFOLLOW, 0)
}
