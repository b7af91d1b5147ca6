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

// A System has processes that are no pod's in cgroups of their own, as kubeletCgroups and
// systemCgroups of a KubeletConfiguration ask. It makes and removes processes' cgroups by
// files, whatever the driver, as a kubelet does.
//
//	Agent   <-- this process            Others  <-- what is in Root itself, again and again
//
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
type System struct {
	Agent  string // empty: this process stays where it is
	Others string // empty: so do the others
	Root   string // cgroupRoot: those right in it are moved to Others
	Log    *slog.Logger
}

// gatherEvery is the time between two looks at Root: what a service manager does not place
// starts there at any time.
const gatherEvery = time.Minute

// Enter moves this process, and so all that it starts from now on; and the others for the first
// time. An error is of the former.
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
		return nil // by its service manager, most often
	}
	if err := m.Apply(os.Getpid()); err != nil {
		return fmt.Errorf("kubeletCgroups: enter %s: %w", s.Agent, err)
	}
	return nil
}

// Run moves the others again and again until ctx ends; without Others it ends at once.
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

// gather moves what is in Root, but for the kernel's own threads and the first process, once
// more when others have started meanwhile.
func (s System) gather() {
	const rounds = 10
	to, err := plain(s.Others)
	if err != nil {
		s.Log.Warn("the system's processes stay where they are", "systemCgroups", s.Others, "error", err)
		return
	}
	left := map[int]error{}
	for range rounds {
		pids, err := s.loose()
		if err != nil {
			s.Log.Warn("the system's processes are not found", "cgroupRoot", s.Root, "error", err)
			return
		}
		pids = slices.DeleteFunc(pids, func(pid int) bool { return left[pid] != nil })
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			if err := to.Apply(pid); err != nil && !ended(pid) {
				left[pid] = err // one of a real-time class, as the kernel may want it
			}
		}
	}
	for pid, err := range left {
		s.Log.Debug("a process of the system stays where it is", "pid", pid, "systemCgroups", s.Others, "error", err)
	}
}

// loose are the processes that gather moves.
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
		break // as a kubelet, which looks at one hierarchy
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// ofKernel reports whether a process has no program, as the kernel's own threads, or has ended.
func ofKernel(pid int) bool {
	_, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	return errors.Is(err, fs.ErrNotExist)
}

func ended(pid int) bool {
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return errors.Is(err, fs.ErrNotExist)
}

// plain is what makes and fills the cgroup at a path.
func plain(at string) (cgroups.Manager, error) {
	return manager.New(&cgroups.Cgroup{Path: clean(at), Resources: &cgroups.Resources{SkipDevices: true}})
}

func clean(at string) string { return path.Join("/", at) }
