package machine

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Exposed lists what a local user without root could do to the files of the agent that
// runs: each is a path with what is wrong with it. What pods may write is theirs, but
// nobody else may come there.
func (m *Machine) Exposed() (found []string) {
	m.t.Helper()
	root := fmt.Sprintf("/proc/%d/root", m.host.Pid())
	// Who walks down to a directory of pods' own has to pass one of these.
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
				if os.IsNotExist(err) { // it ended meanwhile, or this node has no such directory
					return nil
				}
				return err
			}
			if podsOwn(strings.TrimPrefix(file, root)) {
				return fs.SkipDir
			}
			info, err := e.Info()
			if err != nil || e.Type()&fs.ModeSymlink != 0 {
				return nil
			}
			switch mode := info.Mode(); {
			case mode.Perm()&0o022 != 0:
				found = append(found, fmt.Sprintf("%s can be changed: %v", file, mode))
			case secret(file, mode) && mode.Perm()&0o077 != 0:
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

// podsOwn says that what is at and below a path belongs to a pod or an image.
func podsOwn(file string) bool {
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

// secret says that a file holds what no other user may know.
func secret(file string, mode fs.FileMode) bool {
	name := filepath.Base(file)
	known := []string{".db", ".db-wal", ".db-shm", ".key", ".pem", ".sock", ".probe"}
	return mode&fs.ModeSocket != 0 || slices.Contains(known, filepath.Ext(name)) ||
		slices.Contains([]string{"record.json", "config.json", "state.json", "lock"}, name)
}

// Pid is that of the machine's init.
func (m *Machine) Pid() int { return m.host.Pid() }
