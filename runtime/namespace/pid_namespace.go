package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// pidPrefix is the prefix of the file names of pinned PID namespaces.
const pidPrefix = "pid-"

// PIDPath returns the path of the pin for a container's PID namespace in the directory of its
// sandbox. Unpin also removes this pin.
func PIDPath(dir, container string) string { return filepath.Join(dir, pidPrefix+container) }

// PinProcesses pins the PID namespace of a process at path. The PID may have been reused, so the caller passes a check, which runs after
// the namespace was opened. The check must return an error if the PID no longer belongs to the intended process. It is an error if the
// process is in the host's PID namespace.
func PinProcesses(path string, pid int, still func() error) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := still(); err != nil {
		return err
	}
	own, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return err
	}
	if fi, err := ns.Stat(); err != nil || os.SameFile(own, fi) {
		return errors.Join(fmt.Errorf("process %d is in the host's PID namespace", pid), err)
	}
	if err := UnpinProcesses(path); err != nil {
		return err
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", ns.Fd()), path, "", unix.MS_BIND, ""); err != nil {
		return errors.Join(fmt.Errorf("mount %s: %w", path, err), os.Remove(path))
	}
	return nil
}

// UnpinProcesses removes the pin of PinProcesses. A missing pin is not an error.
func UnpinProcesses(path string) error { return removePin(path) }

// removePin unmounts and removes a pin. A file or a directory can be removed only when nothing is mounted on it.
func removePin(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		mounted := err == nil
		if !mounted && err != unix.EINVAL && err != unix.ENOENT {
			return fmt.Errorf("unpin %s: %w", path, err)
		}
		err = os.Remove(path)
		if mounted && errors.Is(err, unix.EBUSY) {
			continue // several mounts are stacked
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("unpin: %w", err)
		}
		return nil
	}
}
