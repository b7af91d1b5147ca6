package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// processes is the prefix of the file names of pinned PID namespaces.
const processes = "pid-"

// PIDPath returns the path in a sandbox's directory at which the PID namespace for a container is
// pinned. Unpin removes this pin too.
func PIDPath(dir, container string) string { return filepath.Join(dir, processes+container) }

// PinProcesses pins the PID namespace of a process at path, so that it stays the same until it is
// used. still is called once the namespace is open. It must return an error if the PID does not
// belong to the intended process any more, because the PID may have been reused. The host's own
// namespace is an error.
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

// UnpinProcesses removes the pin of PinProcesses. A missing pin is no error.
func UnpinProcesses(path string) error { return unpin(path) }

// unpin removes one pin.
func unpin(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // it is not, or no longer, a mount point
		}
		if err != nil {
			return fmt.Errorf("unpin %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unpin: %w", err)
	}
	return nil
}

// pins returns all paths in a sandbox's directory at which something may be pinned.
func pins(dir string) (out []string, err error) {
	for _, f := range flags {
		out = append(out, filepath.Join(dir, f.name))
	}
	out = append(out, filepath.Join(dir, sysfs))
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("unpin: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), processes) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}
