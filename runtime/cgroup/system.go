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

// A System moves the agent and system processes into the cgroups kubeletCgroups and systemCgroups
// of the KubeletConfiguration. Like a kubelet, it uses cgroupfs with both cgroup drivers.
//
//	Agent   <-- this process            Others  <-- processes directly in Root, every minute
//
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
type System struct {
	Agent  string // kubeletCgroups, the cgroup of this process; empty to not move it
	Others string // systemCgroups, the cgroup of system processes; empty to not move them
	Root   string // cgroupRoot; processes directly in it are moved to Others
	Log    *slog.Logger
}

// gatherInterval is the interval at which new processes in Root are moved to Others.
const gatherInterval = time.Minute

// Enter moves the system processes to Others and this process to Agent. Later child processes start
// in the same cgroup. It returns an error if this process could not be moved. Failures for other
// processes are logged.
func (s System) Enter() error {
	if s.Others != "" {
		s.moveProcesses()
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
	if at := []string{self["memory"], self[""]}; slices.Contains(at, cleanPath(s.Agent)) {
		return nil // usually the service manager has done this
	}
	if err := m.Apply(os.Getpid()); err != nil {
		return fmt.Errorf("kubeletCgroups: enter %s: %w", s.Agent, err)
	}
	return nil
}

// Run moves new system processes to Others until ctx ends. It returns at once if Others is empty.
func (s System) Run(ctx context.Context) error {
	if s.Others == "" {
		return nil
	}
	every := time.NewTicker(gatherInterval)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			s.moveProcesses()
		}
	}
}

// moveProcesses moves the processes in Root to Others, except kernel threads and process 1. It repeats
// this until there are no new processes, but not more than ten times.
func (s System) moveProcesses() {
	const rounds = 10
	to, err := managerAt(s.Others)
	if err != nil {
		s.Log.Warn("the system processes could not be moved", "systemCgroups", s.Others, "error", err)
		return
	}
	left := map[int]error{}
	for range rounds {
		pids, err := s.movablePIDs()
		if err != nil {
			s.Log.Warn("the system processes could not be listed", "cgroupRoot", s.Root, "error", err)
			return
		}
		pids = slices.DeleteFunc(pids, func(pid int) bool { return left[pid] != nil })
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			if err := to.Apply(pid); err != nil && !hasEnded(pid) {
				left[pid] = err // for example, the kernel rejects some real-time processes
			}
		}
	}
	for pid, err := range left {
		s.Log.Debug("a system process could not be moved", "pid", pid, "systemCgroups", s.Others, "error", err)
	}
}

// movablePIDs returns the PIDs in Root except kernel threads and process 1.
func (s System) movablePIDs() ([]int, error) {
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
			if pid > 1 && !isKernelThread(pid) {
				found[pid] = true
			}
		}
		break // use the first hierarchy only, like a kubelet
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// isKernelThread reports whether a process has no executable. It also returns true for a process
// that has ended.
func isKernelThread(pid int) bool {
	_, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	return errors.Is(err, fs.ErrNotExist)
}

func hasEnded(pid int) bool {
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return errors.Is(err, fs.ErrNotExist)
}

// managerAt returns the manager of the cgroup at a path.
func managerAt(at string) (cgroups.Manager, error) {
	return manager.New(&cgroups.Cgroup{Path: cleanPath(at), Resources: &cgroups.Resources{SkipDevices: true}})
}

func cleanPath(at string) string { return path.Join("/", at) }
