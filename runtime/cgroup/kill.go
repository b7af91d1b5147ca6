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

// killRounds is the maximum number of attempts to kill the processes of a cgroup. All attempts
// together take about a second.
const killRounds = 200

var errAlive = errors.New("processes are still running after SIGKILL")

// Kill kills all processes in a cgroup and its descendants. It does not need the container's shim. The path is relative to the root of
// the hierarchy. The result is true if there were any processes. If the cgroup does not exist, the error is fs.ErrNotExist. The
// processes of the container may then be in another cgroup. After any other error, some processes may still be running.
func Kill(ctx context.Context, path string) (found bool, err error) {
	dir, err := dirOf(path)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(dir); err != nil {
		return false, err
	}
	return killCgroup(ctx, dir)
}

// KillEverywhere is like Kill, but with cgroup v1 it kills the processes of the cgroup in all hierarchies, not
// only in the hierarchy of the memory controller. If the cgroup does not exist, it returns false and no error.
func KillEverywhere(ctx context.Context, path string) (found bool, err error) {
	if path = filepath.Join("/", path); path == "/" {
		return false, fmt.Errorf("%q is the root cgroup", path)
	}
	dirs := []string{filepath.Join(hierarchyRoot, path)} // cgroup v2
	if !cgroups.IsCgroup2UnifiedMode() {
		if dirs, err = filepath.Glob(filepath.Join(hierarchyRoot, "*")); err != nil {
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
	return killCgroup(ctx, there...)
}

// KillNamed searches all hierarchies for cgroups with one of the names and kills all processes in
// them. Use it if the parent cgroup of a container is unknown.
func KillNamed(ctx context.Context, names ...string) error {
	var dirs []string
	err := filepath.WalkDir(hierarchyRoot, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir(): // cgroups may be removed during the search
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
	_, err = killCgroup(ctx, dirs...)
	return err
}

// dirOf returns the directory of the cgroup at path. The root cgroup is an error, because it
// contains all processes of the machine.
func dirOf(path string) (string, error) {
	if path = filepath.Join("/", path); path == "/" {
		return "", fmt.Errorf("%q is the root cgroup", path)
	}
	if cgroups.IsCgroup2UnifiedMode() {
		return filepath.Join(hierarchyRoot, path), nil
	}
	return filepath.Join(hierarchyRoot, "memory", path), nil
}

const hierarchyRoot = "/sys/fs/cgroup"

// killCgroup kills all processes in a cgroup and its descendants. With cgroup v1, the cgroup has a directory for each controller. The
// result is true if there were any processes.
func killCgroup(ctx context.Context, dirs ...string) (found bool, err error) {
	for round := range killRounds {
		left := false
		for i := 0; i < len(dirs) && !left; i++ { // usually the first directory lists all processes
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

// killListed kills the processes of a cgroup directory and returns their number. If the kernel has
// cgroup.kill, killListed uses it. Without cgroup.kill, the PID of a process that ends could be
// reused before the kill. Therefore killListed opens a pidfd for each listed process, lists the
// processes again, and kills only the processes in both lists.
func killListed(dir string) (int, error) {
	pids, err := listPIDs(dir)
	if err != nil || len(pids) == 0 {
		return 0, err
	}
	if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil { // since Linux 5.14
		return len(pids), nil
	}
	pidfds := map[int]int{}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err == nil:
			pidfds[pid] = fd
			defer unix.Close(fd)
		case errors.Is(err, unix.ENOSYS): // before Linux 5.3
			unix.Kill(pid, unix.SIGKILL)
		}
	}
	again, err := listPIDs(dir)
	for _, pid := range again {
		if fd, ok := pidfds[pid]; ok {
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
	return len(again), err
}

// listPIDs returns the PIDs in a cgroup and its descendants. It returns none if the cgroup was
// removed.
func listPIDs(dir string) ([]int, error) {
	pids, err := cgroups.GetAllPids(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	return pids, err
}
