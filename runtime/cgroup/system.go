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

// A System moves processes that belong to no pod into cgroups, as kubeletCgroups and systemCgroups
// in the KubeletConfiguration specify. It uses cgroupfs with either cgroup driver, as a kubelet
// does.
//
//	Agent   <-- this process            Others  <-- processes directly in Root, at intervals
//
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
type System struct {
	Agent  string // cgroup for this process; if it is empty, the process is not moved
	Others string // cgroup for the system's processes; if it is empty, they are not moved
	Root   string // cgroupRoot; the processes directly in it are moved to Others
	Log    *slog.Logger
}

// gatherEvery is how often processes are moved out of Root, where new ones may start at any time.
const gatherEvery = time.Minute

// Enter moves this process, so that its children start in the same cgroup. Then it moves the
// system's processes for the first time. An error is always about this process; failures for others
// are logged.
func (s System) Enter() error {
	if s.Others != "" {
		s.gather()
	}
	if s.Agent == "" {
		return nil
	}
	m, err := managerAt(s.Agent)
	if err != nil {
		return fmt.Errorf("kubeletCgroups: %w", err)
	}
	self, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return fmt.Errorf("kubeletCgroups: %w", err)
	}
	if at := []string{self["memory"], self[""]}; slices.Contains(at, clean(s.Agent)) {
		return nil // the service manager has usually done this already
	}
	if err := m.Apply(os.Getpid()); err != nil {
		return fmt.Errorf("kubeletCgroups: enter %s: %w", s.Agent, err)
	}
	return nil
}

// Run moves the system's processes at regular intervals until ctx ends. It returns at once if
// Others is empty.
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

// gather moves all processes in Root except kernel threads and process 1. It repeats until no new
// processes appear.
func (s System) gather() {
	const rounds = 10
	to, err := managerAt(s.Others)
	if err != nil {
		s.Log.Warn("the system's processes could not be moved", "systemCgroups", s.Others, "error", err)
		return
	}
	left := map[int]error{}
	for range rounds {
		pids, err := s.movable()
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
				left[pid] = err // for example, the kernel may not allow to move a real-time process
			}
		}
	}
	for pid, err := range left {
		s.Log.Debug("a process of the system could not be moved", "pid", pid, "systemCgroups", s.Others, "error", err)
	}
}

// movable returns the PIDs that gather moves.
func (s System) movable() ([]int, error) {
	m, err := managerAt(s.Root)
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
		break // one hierarchy is enough, as for a kubelet
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// ofKernel reports whether a process has no executable. This is so for kernel threads and for
// processes that have ended.
func ofKernel(pid int) bool {
	_, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	return errors.Is(err, fs.ErrNotExist)
}

func ended(pid int) bool {
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return errors.Is(err, fs.ErrNotExist)
}

// managerAt returns the manager of the cgroup at a path.
func managerAt(at string) (cgroups.Manager, error) {
	return manager.New(&cgroups.Cgroup{Path: clean(at), Resources: &cgroups.Resources{SkipDevices: true}})
}

func clean(at string) string { return path.Join("/", at) }
