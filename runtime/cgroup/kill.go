package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// killRounds is the maximum number of attempts to kill a cgroup, which take about a second.
const killRounds = 200

var errAlive = errors.New("its processes have not ended")

// Kill kills all processes in the cgroup at path, which is relative to the root of the hierarchy,
// and in its nested cgroups. found reports whether there were any. It does not depend on another
// process such as a shim. After an error, some of the processes may still be ending. The error is
// fs.ErrNotExist if the cgroup does not exist; its processes may then be in another cgroup.
func Kill(ctx context.Context, path string) (found bool, err error) {
	dir, err := dirOf(path)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(dir); err != nil {
		return false, err
	}
	return kill(ctx, dir)
}

// KillEverywhere calls Kill for every hierarchy that has the cgroup. Use it for processes that must
// not continue to run, whichever controllers the kernel has. If the cgroup does not exist, found is
// false and there is no error.
func KillEverywhere(ctx context.Context, path string) (found bool, err error) {
	if path = filepath.Join("/", path); path == "/" {
		return false, fmt.Errorf("%q is the root cgroup", path)
	}
	dirs := []string{filepath.Join(hierarchies, path)} // cgroup v2
	if !cgroups.IsCgroup2UnifiedMode() {
		if dirs, err = filepath.Glob(filepath.Join(hierarchies, "*")); err != nil {
			return false, err
		}
		for i := range dirs {
			dirs[i] = filepath.Join(dirs[i], path)
		}
	}
	var there []string
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			there = append(there, dir)
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return false, err
		}
	}
	return kill(ctx, there...)
}

// KillNamed kills all processes in the cgroups with one of these names, wherever they are in the
// hierarchy. Use it if only the ID of the container is known.
func KillNamed(ctx context.Context, names ...string) error {
	var dirs []string
	err := filepath.WalkDir(hierarchies, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir(): // another process may remove cgroups meanwhile
			return nil
		case slices.Contains(names, d.Name()):
			dirs = append(dirs, path)
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = kill(ctx, dirs...)
	return err
}

// dirOf returns a directory of the cgroup at a path. The root is an error, because it contains all
// processes of the machine.
func dirOf(path string) (string, error) {
	if path = filepath.Join("/", path); path == "/" {
		return "", fmt.Errorf("%q is the root cgroup", path)
	}
	if cgroups.IsCgroup2UnifiedMode() {
		return filepath.Join(hierarchies, path), nil
	}
	return filepath.Join(hierarchies, "memory", path), nil
}

const hierarchies = "/sys/fs/cgroup"

// kill kills all processes in a cgroup and its nested cgroups. dirs are the cgroup's directories,
// one for each controller with cgroup v1.
func kill(ctx context.Context, dirs ...string) (found bool, err error) {
	for round := range killRounds {
		left := false
		for i := 0; i < len(dirs) && !left; i++ { // usually all directories list the same processes
			n, err := killListed(dirs[i])
			if err != nil {
				return found, err
			}
			left = n > 0
		}
		found = found || round == 0 && left
		if !left {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-time.After(5 * time.Millisecond): // cgroup v1 has no event for an empty cgroup
		}
	}
	return found, errAlive
}

// killListed kills the processes of a directory and returns their number. With cgroup v2 the kernel
// kills all of them at once. With cgroup v1 a process may end meanwhile and its PID be reused. So
// killListed opens a pidfd for each process, lists the processes again, and kills only those on
// both lists.
func killListed(dir string) (int, error) {
	pids, err := listPIDs(dir)
	if err != nil || len(pids) == 0 {
		return 0, err
	}
	if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil { // since Linux 5.14
		return len(pids), nil
	}
	held := map[int]int{}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err == nil:
			held[pid] = fd
			defer unix.Close(fd)
		case errors.Is(err, unix.ENOSYS): // before Linux 5.3
			unix.Kill(pid, unix.SIGKILL)
		}
	}
	again, err := listPIDs(dir)
	for _, pid := range again {
		if fd, ok := held[pid]; ok {
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
	return len(again), err
}

// listPIDs returns the processes in a cgroup and its nested cgroups. A cgroup that was removed has
// none.
func listPIDs(dir string) ([]int, error) {
	pids, err := cgroups.GetAllPids(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	return pids, err
}
