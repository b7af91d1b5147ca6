package machine

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ExposedFiles lists the files of the running agent that local users other than root can access. Each entry names a file and the access
// that other users have. Directories of pods may be writable for other users if these users cannot access a parent directory.
func (m *Machine) ExposedFiles() (found []string) {
	m.t.Helper()
	root := fmt.Sprintf("/proc/%d/root", m.host.Pid())
	// Every pod's directory is below one of these directories, which other users must not be able
	// to enter.
	closed := []string{"/state/containerd", "/state/runtime/containers", "/state/runtime/sandboxes", "/kubelet", "/kubelet/pods"}
	for i := range closed {
		closed[i] = root + m.Disk + closed[i]
	}
	for _, dir := range []string{"b", "sandboxes", "ns", "s", "oci"} {
		closed = append(closed, root+"/run/islet/"+dir)
	}
	for _, dir := range closed {
		info, err := os.Stat(dir)
		if err != nil {
			m.t.Fatal(err)
		}
		if info.Mode().Perm()&0o007 != 0 {
			found = append(found, fmt.Sprintf("%s can be entered: %v", dir, info.Mode()))
		}
	}
	for _, dir := range []string{root + m.Disk + "/state", root + m.Disk + "/kubelet", root + m.Disk + "/pki", root + "/run/islet"} {
		err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
			if err != nil {
				if os.IsNotExist(err) { // the file was removed, or this node has no such directory
					return nil
				}
				return err
			}
			if belongsToPod(strings.TrimPrefix(file, root)) {
				return fs.SkipDir
			}
			info, err := e.Info()
			if err != nil || e.Type()&fs.ModeSymlink != 0 {
				return nil
			}
			switch mode := info.Mode(); {
			case mode.Perm()&0o022 != 0:
				found = append(found, fmt.Sprintf("%s can be changed: %v", file, mode))
			case isSecret(file, mode) && mode.Perm()&0o077 != 0:
				found = append(found, fmt.Sprintf("%s can be read: %v", file, mode))
			}
			return nil
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	return found
}

// belongsToPod reports whether a path and everything below it belong to a pod or an image.
func belongsToPod(file string) bool {
	dir, name := filepath.Base(filepath.Dir(file)), filepath.Base(file)
	switch {
	case strings.Contains(file, "/kubelet/pods/"):
		return slices.Contains([]string{"volumes", "volume-subpaths", "containers"}, name)
	case strings.Contains(file, "/containerd/"):
		return dir == "snapshots"
	case strings.Contains(file, "/runtime/containers/"):
		return name == "upper" || name == "work"
	}
	return name == "rootfs" || name == "shm"
}

// isSecret reports whether a file is a socket or may contain secrets. Other users must not access
// such a file.
func isSecret(file string, mode fs.FileMode) bool {
	name := filepath.Base(file)
	known := []string{".db", ".db-wal", ".db-shm", ".key", ".pem", ".sock", ".probe"}
	return mode&fs.ModeSocket != 0 || slices.Contains(known, filepath.Ext(name)) ||
		slices.Contains([]string{"record.json", "config.json", "state.json", "lock"}, name)
}

// Pid returns the PID of the machine's init.
func (m *Machine) Pid() int { return m.host.Pid() }
