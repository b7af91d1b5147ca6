package mounts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
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
	batchBytes = 8 << 10 // size of one read of a directory, about 250 names
	// maxOpen is the maximum number of open directories. Containers can create directories of any
	// depth. Directories at a greater depth than maxOpen are moved up before they are removed.
	maxOpen       = 64
	removalPrefix = "..islet-removal-" // name prefix of directories that were moved up; a number follows
)

// RemoveAll removes a file, or a directory with its content. It removes a symlink without following
// it. A mount point is an error and is not removed. A missing path is not an error.
func RemoveAll(path string) error { return RemoveUntil(context.Background(), path) }

// RemoveUntil is like RemoveAll. If ctx ends, it returns after the current file.
func RemoveUntil(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	defer dir.Close()
	return removeAt(ctx, dir, filepath.Base(path))
}

// RemoveAt is like RemoveAll for a name in an open directory.
func RemoveAt(dir *os.File, name string) error { return removeAt(context.Background(), dir, name) }

func removeAt(ctx context.Context, dir *os.File, name string) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("remove %q in %s: not a file name", name, dir.Name())
	}
	conn, err := dir.SyscallConn() // unlike Fd, it keeps the mode of the file, which other goroutines may use
	if err != nil {
		return fmt.Errorf("remove %s: %w", filepath.Join(dir.Name(), name), err)
	}
	r := remover{top: -1, stopped: ctx.Err}
	var removal error
	err = conn.Control(func(fd uintptr) { removal = r.remove(int(fd), entry{name: name, kind: unix.DT_UNKNOWN}, 0) })
	if r.top >= 0 {
		unix.Close(r.top)
	}
	if err = cmp.Or(err, removal); err != nil {
		return fmt.Errorf("remove %s: %w", filepath.Join(dir.Name(), name), err)
	}
	return nil
}

// A remover removes one directory tree. It uses descriptors instead of an os.File for each directory, because the end of a pod removes
// ten to sixteen directories, and an os.File adds several system calls to each.
type remover struct {
	top   int    // topmost directory of the tree, -1 until it is opened
	moved int    // number of directories that were moved to top
	buf   []byte // for reading directories

	stopped func() error // returns an error when the removal must end; may be nil
}

// An entry is a name in a directory, with the kind of the file when the name was read (DT_UNKNOWN: not known).
type entry struct {
	name string
	kind byte
}

func (r *remover) remove(dir int, e entry, depth int) error {
	if r.stopped != nil {
		if err := r.stopped(); err != nil {
			return removeError(e.name, err)
		}
	}
	unlinked := error(unix.EISDIR)
	if e.kind != unix.DT_DIR {
		unlinked = unix.Unlinkat(dir, e.name, 0)
		if unlinked == nil || errors.Is(unlinked, unix.ENOENT) {
			return nil
		}
		if !errors.Is(unlinked, unix.EISDIR) && !errors.Is(unlinked, unix.EPERM) { // unlink of a directory: EPERM in POSIX, EISDIR in Linux
			return removeError(e.name, unlinked)
		}
	}
	err := unix.Unlinkat(dir, e.name, unix.AT_REMOVEDIR)
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR) && e.kind == unix.DT_DIR: // another file has replaced the directory since the name was read
		return r.remove(dir, entry{name: e.name, kind: unix.DT_UNKNOWN}, depth)
	case errors.Is(err, unix.ENOTDIR):
		return removeError(e.name, unlinked)
	case !isNotEmpty(err):
		return removeError(e.name, err)
	case depth == maxOpen:
		return r.moveUp(dir, e.name)
	}
	d, err := openSame(dir, e.name)
	if err != nil {
		return removeError(e.name, err)
	}
	if depth == 0 {
		r.top = d // closed by RemoveAt
	} else {
		defer unix.Close(d)
	}
	return r.removeOpened(dir, e.name, d, depth)
}

// removeOpened removes the content of the open directory d, and then d, which has the given name in dir.
func (r *remover) removeOpened(dir int, name string, d, depth int) error {
	for {
		entries, err := r.readBatch(d)
		if err != nil {
			return removeError(name, err)
		}
		if err := r.removeBatch(d, entries, depth); err != nil {
			return err
		}
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !isNotEmpty(err) || len(entries) == 0 {
			return removeError(name, err)
		}
		if _, err := unix.Seek(d, 0, io.SeekStart); err != nil { // removing names has changed the positions
			return removeError(name, err)
		}
	}
}

// removeBatch removes the entries of a directory. It continues with the other entries after an error.
func (r *remover) removeBatch(d int, entries []entry, depth int) (first error) {
	for _, e := range entries {
		if err := r.remove(d, e, depth+1); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func isNotEmpty(err error) bool { return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) }

// readBatch returns the next entries of a directory, or none at its end.
func (r *remover) readBatch(d int) ([]entry, error) {
	if r.buf == nil {
		r.buf = make([]byte, batchBytes)
	}
	for {
		n, err := unix.Getdents(d, r.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return nil, err
		}
		if all := parseEntries(r.buf[:n]); len(all) > 0 {
			return all, nil
		}
	}
}

// parseEntries parses the records of getdents64: inode (8 bytes), position (8), length of the record (2), kind (1), name and a zero byte.
// It omits the directory itself and its parent.
func parseEntries(b []byte) (all []entry) {
	const lengthAt, kindAt, nameAt = 16, 18, 19
	for len(b) > nameAt {
		length := int(binary.NativeEndian.Uint16(b[lengthAt:]))
		if length <= nameAt || length > len(b) {
			return all
		}
		name, _, _ := bytes.Cut(b[nameAt:length], []byte{0})
		if s := string(name); s != "." && s != ".." {
			all = append(all, entry{name: s, kind: b[kindAt]})
		}
		b = b[length:]
	}
	return all
}

// moveUp moves a directory at the maximum depth to the topmost directory, where it is removed
// later.
func (r *remover) moveUp(dir int, name string) error {
	for {
		r.moved++
		to := removalPrefix + fmt.Sprint(r.moved)
		err := unix.Renameat2(dir, name, r.top, to, unix.RENAME_NOREPLACE)
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
func openSame(dir int, name string) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	}
	fd, err := unix.Openat2(dir, name, how)
	if errors.Is(err, unix.ENOSYS) {
		return openOld(dir, name)
	}
	return fd, err
}

// openOld implements openSame for kernels before 5.6.
func openOld(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	there, err := mountOf(fd)
	here, err2 := mountOf(dir)
	if err = errors.Join(err, err2); err == nil && here != there {
		err = unix.EXDEV
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// mountOf returns the ID of the mount that contains an open file.
func mountOf(fd int) (string, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
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
