package tree

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// copyXattrs copies extended attributes, such as file capabilities, ACLs and user attributes. It
// skips SELinux labels, because they depend on the container, and attributes of overlayfs, because
// they are valid only in layers. It also skips attributes that the target file system does not
// support.
func copyXattrs(from, to int) error {
	n, err := unix.Flistxattr(from, nil)
	if n == 0 && err == nil || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	names := make([]byte, max(n, 0))
	if err == nil {
		n, err = unix.Flistxattr(from, names)
	}
	if err != nil {
		return fmt.Errorf("list extended attributes: %w", err)
	}
	value := make([]byte, maxXattr)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if name == "security.selinux" || strings.HasPrefix(name, "trusted.overlay.") {
			continue
		}
		n, err := unix.Fgetxattr(from, name, value)
		if err == nil {
			err = unix.Fsetxattr(to, name, value[:n], 0)
		}
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("extended attribute %s: %w", name, err)
		}
	}
	return nil
}
