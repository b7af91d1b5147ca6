package mounts

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Shift mounts what is at source at target too, without what is mounted below, and with
// the owners of its files shifted into a user namespace: a file of ID 0 is one of the
// namespace's root. On the disk nothing changes. What is made through a mount that is not
// readOnly is shifted back. Not every file system can do it.
// https://man7.org/linux/man-pages/man2/mount_setattr.2.html
func Shift(source, target string, users *os.File, readOnly bool) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("open the mount of %s: %w", source, err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd()), Propagation: unix.MS_PRIVATE}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("the file system of %s cannot shift the owners of its files into a user namespace: %w", source, err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}
