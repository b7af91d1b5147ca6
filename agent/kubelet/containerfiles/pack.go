package containerfiles

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/untrusted"
)

// maxDepth is the maximum depth of a directory tree that is packed. One descriptor is open for each level.
const maxDepth = 100

// A Packer is a file or directory of a container that exists and can be packed.
type Packer struct {
	dir  *os.File // the parent directory
	base string
	out  *tar.Writer
}

// Prepare opens the parent directory of a file or directory. If name does not exist, the error wraps fs.ErrNotExist.
func (r *Root) Prepare(name string) (*Packer, error) {
	parent, base := path.Split(path.Clean("/" + name))
	if base == "" {
		base = "."
	}
	dir, err := untrusted.OpenDirInRoot(r.path, parent)
	if err != nil {
		return nil, withoutRoot(err, name)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		dir.Close()
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return &Packer{dir: dir, base: base}, nil
}

// withoutRoot replaces the path of a Root in an error with the file's name in the container.
func withoutRoot(err error, name string) error {
	var number unix.Errno
	if errors.As(err, &number) {
		return &os.PathError{Op: "open", Path: name, Err: number}
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Close releases the Packer.
func (p *Packer) Close() error { return p.dir.Close() }

// Pack writes an archive with the file or directory. As with tar -C DIR BASE, the paths in the archive are relative to
// the parent directory. Symlinks are packed as symlinks, and sockets are omitted.
func (p *Packer) Pack(w io.Writer) error {
	p.out = tar.NewWriter(w)
	err := p.pack(int(p.dir.Fd()), p.base, p.base, 0)
	return errors.Join(err, p.out.Close())
}

// pack writes one entry of an open directory, and everything below the entry. The parameter base is the entry's name in
// the directory, and the parameter name is its name in the archive.
func (p *Packer) pack(dir int, base, name string, depth int) error {
	fd, err := unix.Openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT && depth > 0 {
		return nil // removed since the directory was read
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: name, Err: err}
	}
	head := &tar.Header{Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix())}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return p.packDir(fd, head, depth)
	case unix.S_IFREG:
		return p.packFile(fd, head, st.Size)
	case unix.S_IFLNK:
		to := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, "", to)
		if err != nil {
			return &os.PathError{Op: "readlink", Path: name, Err: err}
		}
		head.Typeflag, head.Linkname = tar.TypeSymlink, string(to[:n])
		return p.out.WriteHeader(head)
	case unix.S_IFSOCK:
		return nil
	}
	return fmt.Errorf("%s is neither a file, a directory nor a symbolic link", name)
}

func (p *Packer) packDir(fd int, head *tar.Header, depth int) error {
	name := head.Name
	head.Typeflag, head.Name = tar.TypeDir, name+"/"
	if depth == maxDepth {
		return fmt.Errorf("%s: directories are nested more than %d levels deep", name, maxDepth)
	}
	if err := p.out.WriteHeader(head); err != nil {
		return err
	}
	real, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(real), name)
	defer f.Close()
	for {
		names, err := f.Readdirnames(512)
		slices.Sort(names)
		for _, n := range names {
			if err := p.pack(real, n, path.Join(name, n), depth+1); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func (p *Packer) packFile(fd int, head *tar.Header, size int64) error {
	// The descriptor refers to a regular file. Without O_NONBLOCK, a lease of another process would delay the open.
	real, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: head.Name, Err: err}
	}
	f := os.NewFile(uintptr(real), head.Name)
	defer f.Close()
	head.Typeflag, head.Size = tar.TypeReg, size
	if err := p.out.WriteHeader(head); err != nil {
		return err
	}
	n, err := io.Copy(p.out, io.LimitReader(f, size))
	if err == nil && n < size {
		err = errors.New("the file became shorter while it was read")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", head.Name, err)
	}
	return nil
}
