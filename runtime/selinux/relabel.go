package selinux

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/opencontainers/selinux/go-selinux/label"
	"golang.org/x/sys/unix"
)

const (
	batchSize = 256 // number of names in one read of a directory
	// maxDepth is the maximum depth of a directory tree. Each level needs an open file descriptor.
	maxDepth = 256
)

// MountOption returns the mount option that sets a label for all files of a mount.
func MountOption(l string) string { return label.FormatMountLabel("", l) }

// Relabel labels a file, or a directory and its content in the same file system. The path is trusted, but a pod may
// change the content at the same time, so Relabel does not follow symlinks in the directory and opens only directories.
// It labels the path itself last. If the path already has the label, Relabel assumes that its content has it, too, and
// does nothing.
func (h *Host) Relabel(path, label string) error {
	if label == "" {
		return nil
	}
	if err := h.relabel(path, label); err != nil {
		return fmt.Errorf("relabel %s with %s: %w", path, label, err)
	}
	return nil
}

func (h *Host) relabel(path, label string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if now, err := h.get(fdPath(fd)); err == nil && now == label {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return h.labelTree(fd, st, label, 0)
}

// labelTree labels the file of fd, which is an O_PATH file descriptor. For a directory, it labels
// the content first.
func (h *Host) labelTree(fd int, st unix.Stat_t, label string, depth int) error {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if depth == maxDepth {
			return fmt.Errorf("directories are nested more than %d deep", maxDepth)
		}
		if err := h.labelEntries(fd, st.Dev, label, depth); err != nil {
			return err
		}
	}
	err := h.set(fdPath(fd), label)
	if errors.Is(err, unix.ENOTSUP) { // the file system does not support labels of files
		return nil
	}
	return err
}

func (h *Host) labelEntries(fd int, dev uint64, label string, depth int) error {
	d, err := os.OpenFile(fdPath(fd), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(batchSize)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := h.labelEntry(int(d.Fd()), name, dev, label, depth); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
}

func (h *Host) labelEntry(dir int, name string, dev uint64, label string, depth int) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || uint64(st.Dev) != dev {
		return err
	}
	return h.labelTree(fd, st, label, depth+1)
}

// fdPath returns the path in /proc of the file of a file descriptor.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
