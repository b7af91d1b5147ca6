package volume

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountsBelow lists the mount points at and below a real path, oldest first.
func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var found []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20) // overlay options are long
	for lines.Scan() {
		if fields := strings.SplitN(lines.Text(), " ", 6); len(fields) == 6 {
			if p := unescape.Replace(fields[4]); p == dir || strings.HasPrefix(p, dir+"/") {
				found = append(found, p)
			}
		}
	}
	return found, lines.Err()
}

// unmountBelow leaves nothing mounted at and below dir, or says what is.
func unmountBelow(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil || len(mounts) == 0 {
		return err
	}
	var errs []error
	for i := len(mounts) - 1; i >= 0; i-- {
		if err := unix.Unmount(mounts[i], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", mounts[i], err))
		}
	}
	left, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("still mounted: %s: %w", strings.Join(left, ", "), errors.Join(errs...))
	}
	return nil
}

// mounted reports whether something is mounted at dir.
func mounted(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Lstat(dir, &here); err != nil {
		return false, fmt.Errorf("stat %s: %w", dir, err)
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return false, fmt.Errorf("stat %s: %w", filepath.Dir(dir), err)
	}
	return here.Dev != above.Dev, nil
}

// canMountRecursively reports whether the kernel has mount_setattr, by which OCI
// runtimes mount read-only recursively.
func canMountRecursively() bool {
	return !errors.Is(unix.MountSetattr(-1, "", 0, &unix.MountAttr{}), unix.ENOSYS)
}
