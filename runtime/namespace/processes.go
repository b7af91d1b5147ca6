package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// processes begins the name of a pinned process namespace.
const processes = "pid-"

// Processes is where a container's way to the process namespace of another is pinned in
// a sandbox's directory. Unpin removes it with the rest.
func Processes(dir, container string) string { return filepath.Join(dir, processes+container) }

// PinProcesses pins the process namespace of a process at path, so that it cannot become
// another process's between now and its use. The caller says whether the process was
// still the one that is meant once its namespace was open: a process that ended meanwhile
// may have left its number to any other. The host's own namespace is refused.
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
		return errors.Join(fmt.Errorf("the processes of %d are the host's", pid), err)
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

// UnpinProcesses undoes PinProcesses. A missing pin is success.
func UnpinProcesses(path string) error { return unpin(path) }

// unpin removes one pin.
func unpin(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // not, or no longer, a mount
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

// pins are the paths of all that may be pinned in a sandbox's directory.
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
