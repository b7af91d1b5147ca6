package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// sysfs is the name of the directory that holds the sysfs of a network namespace.
//
// A network namespace has one sysfs. Whether it is read-only, apart from each of its
// mounts, is decided by the first mount, and again after the last one has gone. The mount
// that holdSysfs keeps is the first one and goes with the pins, so that no container
// decides for another.
const sysfs = "sysfs"

// holdSysfs mounts the sysfs of the network namespace in which the calling thread is,
// writable, in dir. An empty directory of it covers the rest, so that nothing that walks
// the run directory finds devices there. (To unmount the rest instead would take longer than all
// else that Pin does.)
//
// It is also success where the agent may not mount one, as inside of an unprivileged
// container: then no pod has one of its own either. The superblock of message queues needs
// no such mount: the IPC namespace holds it.
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
