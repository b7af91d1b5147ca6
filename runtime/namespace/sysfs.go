package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// sysfsDir is the name of the directory at which the sysfs of the network namespace is mounted.
//
// A network namespace has one sysfs superblock while it is mounted. The first mount determines
// whether the superblock is read-only. pinSysfs creates a writable first mount that exists as long
// as the pins. Without this mount, a container with a read-only sysfs would make the sysfs of later
// containers read-only.
const sysfsDir = "sysfs"

// pinSysfs mounts the sysfs of the calling thread's network namespace in dir. It covers the mount
// by a bind mount of an empty directory of the sysfs, so that programs that walk the run directory
// find no devices. (Unmounting the covered mount would take longer than the rest of Pin.)
//
// If the agent has no permission to mount a sysfs, as in an unprivileged container, pinSysfs
// returns nil: in this case, pods cannot mount a sysfs, either. The superblock of mqueue needs no
// pin, because the IPC namespace keeps it.
func pinSysfs(dir string) error {
	at := filepath.Join(dir, sysfsDir)
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	err := unix.Mount(sysfsDir, at, sysfsDir, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
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
