package flash

import (
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/process"
)

// maxDepth is the maximum depth at which cgroups are tracked one by one, because a container may create cgroups of
// its own. Deeper cgroups are read together with their ancestor.
const maxDepth = 8

// A cgroupWrites contains the bytes written by the processes of a cgroup and its descendants up to a CPU time.
// Writing uses CPU time, so the files need not be read again while the CPU time has not changed. Most pods are idle
// most of the time.
type cgroupWrites struct {
	used  time.Duration // CPU time; 0 if unknown
	sum   uint64        // bytes
	below map[string]*cgroupWrites
}

// update reads the files again if the CPU time has changed, and returns the sum.
func (w *cgroupWrites) update(cgroups cgroup.Reader, p process.Reader, path string, depth int) uint64 {
	if depth == 0 {
		return sumBelow(cgroups, p, path)
	}
	used, _ := cgroups.Used(path) // read before the files, so that the next update notices later use
	if used > 0 && used == w.used {
		return w.sum
	}
	before := w.below
	*w = cgroupWrites{used: used}
	pids, err := cgroups.Processes(path)
	if err != nil {
		w.used = 0
		return 0
	}
	for _, pid := range pids {
		w.sum += p.Written(pid)
	}
	children, _ := cgroups.Children(path) // fails if the cgroup was removed
	for _, name := range children {
		one := before[name]
		if one == nil {
			one = new(cgroupWrites)
		}
		if w.below == nil {
			w.below = make(map[string]*cgroupWrites, len(children))
		}
		w.below[name] = one
		w.sum += one.update(cgroups, p, filepath.Join(path, name), depth-1)
	}
	return w.sum
}

// sumBelow returns the bytes written by the processes of a cgroup and its descendants, without tracking these.
func sumBelow(cgroups cgroup.Reader, p process.Reader, path string) (sum uint64) {
	for left := []string{path}; len(left) > 0; {
		at := left[len(left)-1]
		left = left[:len(left)-1]
		pids, _ := cgroups.Processes(at) // fails if the cgroup was removed
		for _, pid := range pids {
			sum += p.Written(pid)
		}
		children, _ := cgroups.Children(at)
		for _, name := range children {
			left = append(left, filepath.Join(at, name))
		}
	}
	return sum
}
