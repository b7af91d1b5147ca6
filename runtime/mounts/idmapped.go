package mounts

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// BindIDMapped creates an idmapped bind mount of source at target, without the mounts below source. The owners are mapped to a user
// namespace. In the mount, files of UID 0 on disk belong to the root user of that namespace, and new files are stored with the unmapped
// IDs. BindIDMapped returns an error if the file system does not support idmapped mounts.
// https://man7.org/linux/man-pages/man2/mount_setattr.2.html
func BindIDMapped(source, target string, users *os.File, readOnly bool) error {
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
		return fmt.Errorf("the file system of %s does not support idmapped mounts: %w", source, err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
	return nil
}
