package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// crunStatus is the part of crun's state of a container that deleteState needs.
// https://github.com/containers/crun/blob/main/src/libcrun/status.c
type crunStatus struct {
	Bundle  string `json:"bundle"`
	Cgroup  string `json:"cgroup-path"`
	Systemd bool   `json:"systemd-cgroup"`
	RDT     string `json:"intelrdt"`
}

// statusFile is the name of crun's file with a crunStatus.
const statusFile = "status"

var errOtherState = errors.New("the OCI runtime must delete this container")

// deleteFromOCI deletes an ended container from the OCI runtime. If possible, it does not start the OCI runtime, because the start of a
// process takes several times as long as the removal of the cgroup and of the state.
func (s *Server) deleteFromOCI(c *container) error {
	r := c.req
	if r.Plain && !r.OCI.Systemd && s.reaper.isProtected(r.OCI.Path) && deleteState(r.OCI.Root, r.ID, r.Bundle) == nil {
		return nil
	}
	return s.runOCI(r, "delete", "--force", r.ID)
}

// isProtected reports whether a path is the path of crun, which protectCommand has opened.
func (r *reaper) isProtected(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.programs[path]
	return ok
}

// deleteState removes the cgroup of an ended container, and then crun's state. It returns an error if the state is not crun's, or if a
// process or a child cgroup is left in the cgroup. crun can repeat or complete the removal after each step.
func deleteState(root, id, bundle string) error {
	dir := filepath.Join(root, id)
	b, err := os.ReadFile(filepath.Join(dir, statusFile))
	if err != nil {
		return err
	}
	var st crunStatus
	if err := json.Unmarshal(b, &st); err != nil {
		return fmt.Errorf("decode crun's state: %w", err)
	}
	if st.Bundle != bundle || st.Systemd || st.RDT != "" || st.Cgroup == "" || path.Clean("/"+st.Cgroup) == "/" {
		return errOtherState
	}
	if err := removeCgroup(st.Cgroup); err != nil {
		return err
	}
	// Without this file, crun removes the rest of the directory. Without one of the other files, it would return an error.
	if err := os.Remove(filepath.Join(dir, statusFile)); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}

// removeCgroup removes an empty cgroup from all hierarchies. The name is relative to the root of the hierarchies.
func removeCgroup(name string) error {
	folders := []string{""}
	if !pathExists(filepath.Join(mountpoint, "cgroup.controllers")) { // v1 or hybrid
		b, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return err
		}
		folders = hierarchies(string(b))
	}
	for _, folder := range folders {
		err := unix.Rmdir(filepath.Join(mountpoint, folder, path.Clean("/"+name)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// hierarchies returns the names of the folders below mountpoint that contain the hierarchies in a file like /proc/self/cgroup.
func hierarchies(file string) (folders []string) {
	for line := range strings.Lines(file) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 {
			folder := strings.TrimPrefix(f[1], "name=")
			if folder == "" {
				folder = "unified"
			}
			folders = append(folders, folder)
		}
	}
	return folders
}
