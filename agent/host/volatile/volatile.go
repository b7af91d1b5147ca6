package volatile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/readonly"
	"github.com/islet-edge/islet/runtime/mounts"
)

// Source is the source name of the layer's mounts in the mount table.
const Source = "islet-volatile"

// Name is the name of the directory in the run directory that contains the layer.
const Name = "volatile"

// A Dir is a directory that the agent writes to.
type Dir struct {
	Path     string
	Separate []string // relative to Path; directories that do not exist are skipped
}

// Config configures MountLayers.
type Config struct {
	Dirs []Dir  // of the agent; no other process may use them during the call
	Run  string // the run directory, which must be writable
	// Bytes is the maximum memory for all directories. The default is a quarter of the machine's memory.
	Bytes uint64
}

// A Layer is the set of directories that are in memory. It is nil if there is none.
type Layer struct {
	Dirs  []string // covered directories
	Bytes uint64   // maximum size

	newDirs []string // the elements of Dirs that this call of MountLayers has covered
	unread  []string // files and directories that the disk did not return to this call
}

// IsNew reports whether this call of MountLayers has covered the directory. A file that was opened there before the call
// is not the file that is visible now.
func (l *Layer) IsNew(dir string) bool { return l != nil && slices.Contains(l.newDirs, dir) }

// String describes the layer for the user. It returns "" if no directory is covered.
func (l *Layer) String() string {
	if l == nil {
		return ""
	}
	text := fmt.Sprintf("the disk of %s takes no writes: changes are kept in memory, at most %d MiB, and are "+
		"lost at the next boot; repair the disk and reboot",
		strings.Join(l.Dirs, ", "), l.Bytes>>20)
	if n := len(l.unread); n > 0 {
		text += ". The disk does not return " + strings.Join(l.unread[:min(n, maxNames)], ", ")
		if n > maxNames {
			text += fmt.Sprintf(" and %d more", n-maxNames)
		}
	}
	return text
}

// maxNames is the maximum number of unreadable files that String names.
const maxNames = 5

// MountLayers covers each directory that is on a read-only disk. It keeps the layers of earlier calls. It skips missing
// directories.
func MountLayers(c Config) (*Layer, error) {
	l := &Layer{}
	var err error
	if c.Run, err = filepath.EvalSymlinks(c.Run); err != nil {
		return nil, err
	}
	for _, d := range c.Dirs {
		real, err := filepath.EvalSymlinks(d.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		covered, err := isCovered(real)
		if err != nil {
			return nil, err
		}
		if !covered {
			if !readonly.CheckDisk(real) {
				continue
			}
			unread, err := c.coverDirectory(real, d.Separate)
			if err != nil {
				return nil, fmt.Errorf("%s is on a disk that takes no writes, and no overlay in memory can be mounted over "+
					"it; make the disk writable (such as by mount -o remount,rw) and start islet again: %w",
					d.Path, err)
			}
			l.newDirs, l.unread = append(l.newDirs, d.Path), append(l.unread, unread...)
		}
		l.Dirs = append(l.Dirs, d.Path)
	}
	if len(l.Dirs) == 0 {
		return nil, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Join(c.Run, Name), &st); err != nil {
		return nil, err
	}
	l.Bytes = st.Blocks * uint64(st.Bsize)
	return l, nil
}

// UnmountLayers removes the layers, which must not be in use. Their data is lost when the directory Name in the run
// directory is unmounted.
func UnmountLayers(dirs ...Dir) error {
	var errs []error
	for _, d := range slices.Backward(dirs) {
		real, err := filepath.EvalSymlinks(d.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		covered := false
		if err == nil {
			covered, err = isCovered(real)
		}
		if err == nil && covered {
			if err = mounts.DetachBelow(real); err == nil {
				err = unix.Unmount(real, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("unmount the layer over %s: %w", d.Path, err))
		}
	}
	return errors.Join(errs...)
}

// IsCovered reports whether a layer covers a directory, so that files in it are lost at the next boot.
func IsCovered(dir string) (bool, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false, err
	}
	return isCovered(real)
}

// isCovered reports whether the mount at a directory belongs to a layer.
func isCovered(real string) (bool, error) {
	m, err := mounts.FindContaining(real)
	return err == nil && m.Mountpoint == real && m.Source == Source, err
}

// coverDirectory builds the layer at another path, and then moves it over the directory in one step. So an interrupted call
// changes nothing. It returns the files in the separate directories that the disk did not return.
func (c Config) coverDirectory(dir string, apart []string) (unread []string, err error) {
	base := filepath.Join(c.Run, Name)
	if err := c.mountBase(base); err != nil {
		return nil, err
	}
	home := filepath.Join(base, fmt.Sprintf("%x", sha256.Sum256([]byte(dir)))[:16])
	if err := errors.Join(mounts.DetachBelow(home), mounts.RemoveAll(home)); err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(home, name) }
	for _, name := range []string{"disk", "upper", "work", "merged"} {
		if err := os.MkdirAll(in(name), 0o700); err != nil {
			return nil, err
		}
	}
	if err := bindMount(dir, in("disk")); err != nil {
		return nil, err
	}
	if err := unix.Mount("", in("disk"), "", unix.MS_PRIVATE, ""); err != nil { // mounts made over dir later must not propagate here
		return nil, fmt.Errorf("make the mount %s private: %w", in("disk"), err)
	}
	if err := copyMode(in("disk"), in("upper")); err != nil {
		return nil, err
	}
	seed, places := newSeeder(), map[string]string{} // from the copies to their places
	for i, name := range apart {
		to := filepath.Join(in("apart"), fmt.Sprint(i))
		err := os.MkdirAll(in("apart"), 0o700)
		if err == nil {
			err = seed.seedDirectory(filepath.Join(in("disk"), name), to, 2)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = seed.makePlace(in("disk"), in("upper"), name)
		}
		if err != nil {
			return nil, err
		}
		places[to] = filepath.Join(in("merged"), name)
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on", in("disk"), in("upper"), in("work"))
	if err := unix.Mount(Source, in("merged"), "overlay", 0, options); err != nil {
		return nil, fmt.Errorf("mount an overlay: %w", err)
	}
	for from, to := range places {
		if err := bindMount(from, to); err != nil {
			return nil, err
		}
	}
	if err := carryMounts(dir, in("merged")); err != nil {
		return nil, err
	}
	if err := unix.Mount(in("merged"), dir, "", unix.MS_MOVE, ""); err != nil {
		return nil, fmt.Errorf("put the overlay over the directory: %w", err)
	}
	for _, path := range seed.unread {
		unread = append(unread, dir+strings.TrimPrefix(path, in("disk")))
	}
	return unread, nil
}

// mountBase mounts the tmpfs unless it is mounted. Like ext4, the tmpfs has one inode for every 16 KiB, because its
// size limit does not include the memory for inodes.
func (c Config) mountBase(base string) error {
	if err := os.MkdirAll(base, 0o700); err != nil {
		return err
	}
	if there, err := isCovered(base); err != nil || there {
		return err
	}
	if c.Bytes == 0 {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return fmt.Errorf("read the memory size: %w", err)
		}
		c.Bytes = uint64(info.Totalram) * uint64(info.Unit) / 4
	}
	if err := unix.Mount(Source, base, "tmpfs", 0,
		fmt.Sprintf("mode=700,size=%d,nr_inodes=%d", c.Bytes, max(c.Bytes>>14, 1<<10))); err != nil {
		return fmt.Errorf("mount a tmpfs at %s: %w", base, err)
	}
	return unix.Mount("", base, "", unix.MS_PRIVATE, "") // mounts can only be moved from a private mount
}

// carryMounts copies all mounts below one directory (from) to the same relative paths below another directory (to).
func carryMounts(from, to string) error {
	on, err := mounts.FindContaining(from)
	if err != nil {
		return err
	}
	table, err := mountinfo.GetMounts(mountinfo.PrefixFilter(from))
	if err != nil {
		return err
	}
	for _, m := range table {
		if m.Mountpoint == from {
			continue
		}
		source, target := m.Mountpoint, to+strings.TrimPrefix(m.Mountpoint, from)
		// If a directory is bind-mounted on itself, the bind mount is recreated in the layer. A copy of that mount
		// would show the directory on the disk.
		if m.Major == on.Major && m.Minor == on.Minor && m.Root == filepath.Join(on.Root, strings.TrimPrefix(m.Mountpoint, on.Mountpoint)) {
			source = target
		}
		if err := bindMount(source, target); err != nil {
			return err
		}
	}
	return mounts.DetachBelow(from)
}

func bindMount(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, to, err)
	}
	return nil
}
