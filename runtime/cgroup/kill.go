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

// killRounds bounds killing a cgroup: a second.
const killRounds = 200

var errAlive = errors.New("its processes do not end")

// Kill ends all processes in the cgroup at a path from the hierarchies' root, and below it, and
// says whether there were any. It needs no other process for that. Where it fails they may still
// be about to end. fs.ErrNotExist: there is no such cgroup, so what should be in it may be in another.
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

// KillEverywhere is Kill in every hierarchy that has the cgroup: for processes that must not run
// any more, whatever controllers the kernel has. A cgroup that is nowhere has no processes.
func KillEverywhere(ctx context.Context, path string) (found bool, err error) {
	if path = filepath.Join("/", path); path == "/" {
		return false, fmt.Errorf("%q is no cgroup of anybody's own", path)
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

// KillNamed ends all processes in the cgroups with one of these names, wherever they are. It is
// for containers of which only the ID is known.
func KillNamed(ctx context.Context, names ...string) error {
	var dirs []string
	err := filepath.WalkDir(hierarchies, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir(): // cgroups come and go
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

// dirOf is a directory of the cgroup at a path, which must not be the root: there the whole machine is.
func dirOf(path string) (string, error) {
	if path = filepath.Join("/", path); path == "/" {
		return "", fmt.Errorf("%q is no cgroup of anybody's own", path)
	}
	if cgroups.IsCgroup2UnifiedMode() {
		return filepath.Join(hierarchies, path), nil
	}
	return filepath.Join(hierarchies, "memory", path), nil
}

const hierarchies = "/sys/fs/cgroup"

// kill ends all processes in a cgroup, which has a directory for each controller with cgroup v1,
// and below it.
func kill(ctx context.Context, dirs ...string) (found bool, err error) {
	for round := range killRounds {
		left := false
		for i := 0; i < len(dirs) && !left; i++ { // they have the same ones, as a rule
			n, err := killListed(dirs[i])
			if err != nil {
				return found, err
			}
			left = n > 0
		}
		if found = found || round == 0 && left; !left {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-time.After(5 * time.Millisecond): // cgroup v1 has no event for it
		}
	}
	return found, errAlive
}

// killListed kills what a directory lists, and says how many those are. With cgroup v2 the kernel
// kills them all at once. Else one may end, and a stranger have its ID: so only a process is killed
// that was held before it was listed.
func killListed(dir string) (int, error) {
	pids, err := listed(dir)
	if err != nil || len(pids) == 0 {
		return 0, err
	}
	if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil { // from Linux 5.14 on
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
	again, err := listed(dir)
	for _, pid := range again {
		if fd, ok := held[pid]; ok {
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
	return len(again), err
}

// listed are the processes in a cgroup and below it; one that is gone has none.
func listed(dir string) ([]int, error) {
	pids, err := cgroups.GetAllPids(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	return pids, err
}
