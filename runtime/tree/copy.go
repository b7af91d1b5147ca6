package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// ErrNoRoom is returned by Copy if the copy would exceed its Room.
var ErrNoRoom = errors.New("there is not enough space for a copy")

// ErrTooDeep is returned by Copy if directories are nested more than maxDepth deep.
var ErrTooDeep = fmt.Errorf("directories are nested more than %d deep", maxDepth)

const (
	maxDepth  = 200 // maximum depth; limits the number of open directories
	batchSize = 256 // number of names in one read of a directory
	// maxLinks is the maximum number of files with hard links that are tracked. The links of other files become separate
	// copies.
	maxLinks  = 10_000
	maxNames  = 1 << 20  // maximum total length of the names of these files, in bytes
	chunkSize = 1 << 20  // bytes between two checks of the context and the free space
	leastUse  = 4 << 10  // minimum disk usage of a file, in bytes
	maxXattr  = 64 << 10 // the kernel's maximum size of an attribute value, in bytes
)

// Room is the space that copies may use. Copy subtracts the copied bytes and files from Bytes and
// Files.
type Room struct {
	Bytes, Files uint64
	// Floor is the number of bytes that must stay free on the file system of the copy. Copy checks
	// it during the copy, because other processes may write. Zero disables the check.
	Floor uint64
}

// HalfOfFree returns a Room with half of the free space of the file system of a directory. The other half
// is the Floor. If several copies run at the same time, each with its own Room, the smallest Floor
// stays free.
func HalfOfFree(dir string) (Room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Room{}, fmt.Errorf("free space of %s: %w", dir, err)
	}
	half := st.Bavail * uint64(st.Bsize) / 2
	room := Room{Bytes: half, Files: st.Ffree / 2, Floor: half}
	if st.Files == 0 { // no fixed number of inodes
		room.Files = ^uint64(0)
	}
	return room, nil
}

// Copy copies the content, owner, mode, extended attributes and times of one directory to another. The target must be
// empty and inaccessible to other users, and the source must not change. Sockets and SELinux labels are not copied.
//
// After an error, the copy is incomplete.
func Copy(ctx context.Context, from, to *os.File, room *Room) error {
	c := copier{ctx: ctx, top: int(to.Fd()), room: room, linked: map[inode]string{}}
	var st unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &st); err != nil {
		return err
	}
	return c.copyDirectory(from, to, &st, "", 0)
}

type inode struct{ dev, ino uint64 }

type copier struct {
	ctx       context.Context //nolint:containedctx // lives as long as the copy
	top       int
	room      *Room
	linked    map[inode]string // path of the first link in the copy
	names     int              // total length of the paths in linked
	unchecked uint64           // bytes since the last check of the free space
}

// reserveBytes subtracts bytes from the room. It returns ErrNoRoom if the room is exceeded or the free
// space is below Floor.
func (c *copier) reserveBytes(bytes uint64) error {
	if bytes > c.room.Bytes {
		return ErrNoRoom
	}
	c.room.Bytes -= bytes
	return c.checkFree(bytes)
}

// checkFree returns ErrNoRoom if the free space is below Floor. It checks this only once per chunkSize.
func (c *copier) checkFree(written uint64) error {
	if c.unchecked += written; c.unchecked < chunkSize || c.room.Floor == 0 {
		return nil
	}
	c.unchecked = 0
	var st unix.Statfs_t
	if err := unix.Fstatfs(c.top, &st); err != nil {
		return err
	}
	if st.Bavail*uint64(st.Bsize) < c.room.Floor {
		return ErrNoRoom
	}
	return nil
}

// copyDirectory copies the content and the attributes of a directory. Its path in the copy is used to create hard links.
func (c *copier) copyDirectory(from, to *os.File, st *unix.Stat_t, at string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: %w", at, ErrTooDeep)
	}
	for {
		names, err := from.Readdirnames(batchSize)
		for _, name := range names {
			if err := c.copyEntry(from, to, at, name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read directory %s: %w", at, err)
		}
	}
	return copyAttributes(int(from.Fd()), int(to.Fd()), st)
}

func (c *copier) copyEntry(from, to *os.File, at, name string, depth int) error {
	at = path.Join(at, name)
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if c.room.Files == 0 {
		return fmt.Errorf("%s: %w", at, ErrNoRoom)
	}
	c.room.Files--
	var st unix.Stat_t
	err := c.checkFree(leastUse)
	if err == nil {
		err = unix.Fstatat(int(from.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			return c.copySubdirectory(from, to, &st, at, name, depth)
		case unix.S_IFREG:
			err = c.copyFile(int(from.Fd()), int(to.Fd()), &st, at, name)
		case unix.S_IFLNK:
			err = copySymlink(int(from.Fd()), int(to.Fd()), &st, name)
		case unix.S_IFCHR, unix.S_IFBLK, unix.S_IFIFO:
			err = copyNode(int(to.Fd()), &st, name)
		}
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", at, err)
	}
	return nil
}

func (c *copier) copySubdirectory(from, to *os.File, st *unix.Stat_t, at, name string, depth int) error {
	if err := unix.Mkdirat(int(to.Fd()), name, 0o700); err != nil {
		return fmt.Errorf("copy %s: %w", at, err)
	}
	src, err := open(int(from.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("copy %s: %w", at, err)
	}
	defer src.Close()
	dst, err := open(int(to.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("copy %s: %w", at, err)
	}
	defer dst.Close()
	return c.copyDirectory(src, dst, st, at, depth+1)
}

func open(at int, name string, flag int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(at, name, flag|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// copyFile copies a regular file. If another hard link of the file was already copied, it creates a
// hard link.
func (c *copier) copyFile(from, to int, st *unix.Stat_t, at, name string) (err error) {
	if st.Nlink > 1 {
		id := inode{uint64(st.Dev), st.Ino}
		if first, ok := c.linked[id]; ok {
			return unix.Linkat(c.top, first, to, name, 0)
		}
		if len(c.linked) < maxLinks && c.names+len(at) <= maxNames && len(at) < unix.PathMax {
			c.linked[id], c.names = at, c.names+len(at)
		}
	}
	src, err := open(from, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := open(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	for {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(dst, src, chunkSize) // copy_file_range shares blocks if the file system supports it
		if err := c.reserveBytes(uint64(n)); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return copyAttributes(int(src.Fd()), int(dst.Fd()), st)
		}
		if err != nil {
			return err
		}
	}
}

func copySymlink(from, to int, st *unix.Stat_t, name string) error {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(from, name, target)
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(string(target[:n]), to, name); err != nil {
		return err
	}
	return errors.Join(unix.Fchownat(to, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW), setTimes(to, name, st))
}

func copyNode(to int, st *unix.Stat_t, name string) error {
	if err := unix.Mknodat(to, name, st.Mode&unix.S_IFMT|0o600, int(st.Rdev)); err != nil {
		return err
	}
	return errors.Join(
		unix.Fchownat(to, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW),
		unix.Fchmodat(to, name, st.Mode&0o7777, 0), setTimes(to, name, st))
}

func setTimes(at int, name string, st *unix.Stat_t) error {
	return unix.UtimesNanoAt(at, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// copyAttributes copies the owner, extended attributes, mode and times. The owner comes first, because
// chown clears file capabilities and the set-user-ID bit.
func copyAttributes(from, to int, st *unix.Stat_t) error {
	if err := unix.Fchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := copyXattrs(from, to); err != nil {
		return err
	}
	if err := unix.Fchmod(to, st.Mode&0o7777); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", to), []unix.Timespec{st.Atim, st.Mtim}, 0)
}
