package untrusted

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// linkMode defines whether a walk follows symlinks.
type linkMode bool

const (
	refuseLinks linkMode = false
	followLinks linkMode = true
)

// These are the limits of a walk. The limits of the length of a name and of the number of symlinks
// have the same values as in the kernel. maxDepth is the maximum number of directories that a walk
// keeps open.
const (
	maxName  = 4096
	maxLinks = 40
	maxDepth = 128
)

// A nameWalk resolves a name from root. It keeps a descriptor of each directory that it has entered.
// So ".." leads back to the directory before, even if a directory was renamed meanwhile.
type nameWalk struct {
	mode     linkMode
	dirs     []int    // the first is root
	parts    []string // unresolved components
	followed int      // followed symlinks

	entered func(path string) // called for each mount that the walk enters; may be nil
}

func startWalk(root, name string, on linkMode) (*nameWalk, error) {
	if len(name) > maxName {
		return nil, unix.ENAMETOOLONG
	}
	if strings.ContainsRune(name, 0) {
		return nil, unix.EINVAL
	}
	w := &nameWalk{mode: on, parts: splitName(name)}
	if on == refuseLinks && slices.Contains(w.parts, "..") {
		return nil, errors.New("the name contains ..")
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	w.dirs = []int{fd}
	return w, nil
}

// splitName returns the components of a name. It omits empty components and ".".
func splitName(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(p string) bool { return p == "" || p == "." })
}

func (w *nameWalk) currentDir() int { return w.dirs[len(w.dirs)-1] }

// resolve resolves the whole name and returns an O_PATH descriptor. If only the last component
// could not be opened, resolve also returns the name of this component. The current directory of
// the walk is then the directory in which this component would be.
func (w *nameWalk) resolve() (fd int, last string, err error) {
	for len(w.parts) > 0 {
		part := w.parts[0]
		w.parts = w.parts[1:]
		if part == ".." {
			w.toParent()
			continue
		}
		fd, err := w.open(part)
		if err != nil {
			if len(w.parts) > 0 {
				part = ""
			}
			return -1, part, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return -1, "", err
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			if w.mode == refuseLinks && len(w.parts) == 0 {
				return fd, "", nil
			}
			err := w.followLink(fd)
			unix.Close(fd)
			if err != nil {
				return -1, "", err
			}
			continue
		case unix.S_IFDIR:
			if len(w.dirs) == maxDepth {
				unix.Close(fd)
				return -1, "", unix.ENAMETOOLONG
			}
			w.dirs = append(w.dirs, fd)
			continue
		}
		if len(w.parts) > 0 {
			unix.Close(fd)
			return -1, "", unix.ENOTDIR
		}
		return fd, "", nil
	}
	fd, err = unix.FcntlInt(uintptr(w.currentDir()), unix.F_DUPFD_CLOEXEC, 0) // a directory
	return fd, "", err
}

// open opens a component of the current directory with O_PATH. This does not access the file system of a mount that is entered. Before
// Linux 5.6 it cannot detect mounts, and calls entered for each component.
func (w *nameWalk) open(part string) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if w.entered != nil {
		how := &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_XDEV}
		fd, err := unix.Openat2(w.currentDir(), part, how)
		if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.ENOSYS) {
			return fd, err
		}
	}
	fd, err := unix.Openat(w.currentDir(), part, flags, 0)
	if err == nil && w.entered != nil {
		w.entered(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
	}
	return fd, err
}

// followLink puts the target of a symlink before the unresolved components.
func (w *nameWalk) followLink(link int) error {
	w.followed++
	if w.mode == refuseLinks || w.followed > maxLinks {
		return unix.ELOOP
	}
	b := make([]byte, maxName)
	n, err := unix.Readlinkat(link, "", b)
	if err != nil {
		return err
	}
	target := string(b[:n])
	if strings.HasPrefix(target, "/") {
		for len(w.dirs) > 1 {
			w.toParent()
		}
	}
	w.parts = append(splitName(target), w.parts...)
	return nil
}

// toParent moves to the parent directory. The parent of root is root.
func (w *nameWalk) toParent() {
	if len(w.dirs) > 1 {
		unix.Close(w.currentDir())
		w.dirs = w.dirs[:len(w.dirs)-1]
	}
}

func (w *nameWalk) close() {
	for _, fd := range w.dirs {
		unix.Close(fd)
	}
}
