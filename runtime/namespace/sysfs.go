package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// sysfs is the name of the directory where the sysfs of a network namespace is mounted.
//
// A network namespace has one sysfs superblock. The superblock is read-only if the first mount is,
// whatever the flags of the other mounts are. After the last mount is removed, the next one counts
// as the first. holdSysfs creates the first mount, which exists as long as the pins. So no
// container determines the superblock of another.
const sysfs = "sysfs"

// holdSysfs mounts the sysfs of the calling thread's network namespace in dir. The mount is
// writable. A bind mount of an empty directory of the sysfs covers the rest, so that programs that
// walk the run directory find no devices there. (Unmounting the rest would take longer than
// everything else in Pin.)
//
// If the agent may not mount a sysfs, as in an unprivileged container, there is no error, because
// then no pod can mount one either. The superblock of message queues needs no such mount, because
// the IPC namespace keeps it.
func holdSysfs(dir string) error {
	at := filepath.Join(dir, sysfs)
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	err := unix.Mount(sysfs, at, sysfs, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err == nil {
		err = unix.Mount(filepath.Join(at, "fs/cgroup"), at, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("mount the sysfs of the network namespace at %s: %w", at, err)
	}
	return nil
}
