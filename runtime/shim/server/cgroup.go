package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const mountpoint = "/sys/fs/cgroup"

// killRounds is the maximum number of attempts to kill a cgroup whose processes fork faster than
// they are killed.
const killRounds = 100

// cgroupFiles contains the paths of the kernel's files for a container's cgroup.
type cgroupFiles struct {
	procs  string // path of cgroup.procs; empty if the cgroup is unknown
	events string // path of the file that counts OOM kills
	// parentEvents is the path of the parent cgroup's file that counts OOM kills. The next field is the count in this file at the start of
	// the container. Both are needed because systemd removes a cgroup when its last process has ended.
	parentEvents   string
	oomKillsBefore int64
}

// cgroupAt returns the cgroup at a path relative to the root of the hierarchies. The agent sends
// the path, because /proc does not contain the cgroup of a process that has ended.
func cgroupAt(path string) cgroupFiles {
	if path == "" {
		return cgroupFiles{}
	}
	if !pathExists(filepath.Join(mountpoint, "cgroup.controllers")) { // v1 or hybrid
		dir := filepath.Join(mountpoint, "memory", path)
		return cgroupFiles{procs: filepath.Join(dir, "cgroup.procs"), events: filepath.Join(dir, "memory.oom_control")}
	}
	dir := filepath.Join(mountpoint, path)
	c := cgroupFiles{
		procs: filepath.Join(dir, "cgroup.procs"), events: filepath.Join(dir, "memory.events"),
		parentEvents: filepath.Join(filepath.Dir(dir), "memory.events"),
	}
	c.oomKillsBefore, _ = oomKills(c.parentEvents) // the parent may not exist yet
	return c
}

// signalAll sends a signal to every process of the cgroup.
func (c cgroupFiles) signalAll(sig unix.Signal) error {
	_, err := c.signalProcesses(sig)
	return err
}

// killAll kills the processes of the cgroup until it is empty. With cgroup v2, cgroup.kill also
// kills the processes in child cgroups that the container created.
func (c cgroupFiles) killAll() error {
	if c.procs != "" {
		os.WriteFile(filepath.Join(filepath.Dir(c.procs), "cgroup.kill"), []byte("1"), 0) // since Linux 5.14
	}
	for range killRounds {
		n, err := c.signalProcesses(unix.SIGKILL)
		if n == 0 || err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond) // cgroup v1 has no event for an empty cgroup
	}
	return errors.New("new processes appear faster than they are killed")
}

func (c cgroupFiles) signalProcesses(sig unix.Signal) (n int, err error) {
	b, err := os.ReadFile(c.procs)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil || pid <= 0 {
			continue // a process of another PID namespace
		}
		if err := unix.Kill(pid, sig); err == nil {
			n++
		}
	}
	return n, nil
}

func pathExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
