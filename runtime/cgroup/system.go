package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// A System moves processes that do not belong to pods into cgroups, as configured by kubeletCgroups
// and systemCgroups of a KubeletConfiguration. It uses the cgroup file system with either driver,
// as a kubelet does.
//
//	Agent   <-- this process            Others  <-- processes directly in Root, at intervals
//
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
type System struct {
	Agent  string // cgroup of this process; empty: do not move it
	Others string // cgroup of the system's processes; empty: do not move them
	Root   string // cgroupRoot: processes directly in it are moved to Others
	Log    *slog.Logger
}

// gatherEvery is the interval of moves out of Root, in which new processes may start at any time.
const gatherEvery = time.Minute

// Enter moves this process, so that its children start in the same cgroup, and the system's
// processes for the first time. Only the former can return an error.
func (s System) Enter() error {
	if s.Others != "" {
		s.gather()
	}
	if s.Agent == "" {
		return nil
	}
	m, err := plain(s.Agent)
	if err != nil {
		return fmt.Errorf("kubeletCgroups: %w", err)
	}
	self, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return fmt.Errorf("kubeletCgroups: %w", err)
	}
	if at := []string{self["memory"], self[""]}; slices.Contains(at, clean(s.Agent)) {
		return nil // usually its service manager did this
	}
	if err := m.Apply(os.Getpid()); err != nil {
		return fmt.Errorf("kubeletCgroups: enter %s: %w", s.Agent, err)
	}
	return nil
}

// Run moves the system's processes at intervals until ctx ends. Without Others it returns at once.
func (s System) Run(ctx context.Context) error {
	if s.Others == "" {
		return nil
	}
	every := time.NewTicker(gatherEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			s.gather()
		}
	}
}

// gather moves the processes in Root, except kernel threads and process 1. It repeats while new
// processes appear.
func (s System) gather() {
	const rounds = 10
	to, err := plain(s.Others)
	if err != nil {
		s.Log.Warn("the system's processes could not be moved", "systemCgroups", s.Others, "error", err)
		return
	}
	left := map[int]error{}
	for range rounds {
		pids, err := s.loose()
		if err != nil {
			s.Log.Warn("the system's processes could not be listed", "cgroupRoot", s.Root, "error", err)
			return
		}
		pids = slices.DeleteFunc(pids, func(pid int) bool { return left[pid] != nil })
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			if err := to.Apply(pid); err != nil && !ended(pid) {
				left[pid] = err // such as a real-time process, which the kernel may not allow to move
			}
		}
	}
	for pid, err := range left {
		s.Log.Debug("a process of the system could not be moved", "pid", pid, "systemCgroups", s.Others, "error", err)
	}
}

// loose returns the processes that gather moves.
func (s System) loose() ([]int, error) {
	m, err := plain(s.Root)
	if err != nil {
		return nil, err
	}
	paths, found := m.GetPaths(), map[int]bool{}
	for _, controller := range []string{"", "memory", "cpu"} {
		dir, ok := paths[controller]
		if !ok {
			continue
		}
		pids, err := cgroups.GetPids(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, pid := range pids {
			if pid > 1 && !ofKernel(pid) {
				found[pid] = true
			}
		}
		break // as a kubelet, which reads one hierarchy
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// ofKernel reports whether a process has no executable, like kernel threads, or has ended.
func ofKernel(pid int) bool {
	_, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	return errors.Is(err, fs.ErrNotExist)
}

func ended(pid int) bool {
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return errors.Is(err, fs.ErrNotExist)
}

// plain returns the manager of the cgroup at a path.
func plain(at string) (cgroups.Manager, error) {
	return manager.New(&cgroups.Cgroup{Path: clean(at), Resources: &cgroups.Resources{SkipDevices: true}})
}

func clean(at string) string { return path.Join("/", at) }
