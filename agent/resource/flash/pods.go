package flash

import (
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/process"
)

// maxDepth is the maximum depth at which cgroups are tracked individually. There is a limit because a container may
// create cgroups. A deeper cgroup is read together with its ancestor.
const maxDepth = 8

// cgroupWrites contains the number of bytes that the processes of a cgroup and its descendants have written, and
// the CPU time that the cgroup had used by then. A process that uses no CPU time writes nothing. So the files in
// /proc are read again only if the CPU time has changed. Most pods are idle most of the time.
type cgroupWrites struct {
	cpuTime  time.Duration // CPU time; 0 if unknown
	sum      uint64        // bytes
	children map[string]*cgroupWrites
}

// update reads the files again if the CPU time has changed, and returns the sum.
func (w *cgroupWrites) update(cgroups cgroup.Reader, p process.Reader, path string, depth int) uint64 {
	if depth == 0 {
		return sumOfDescendants(cgroups, p, path)
	}
	used, _ := cgroups.CPUTime(path) // read before the files, so that the next update detects any later use
	if used > 0 && used == w.cpuTime {
		return w.sum
	}
	before := w.children
	*w = cgroupWrites{cpuTime: used}
	pids, err := cgroups.Processes(path)
	if err != nil {
		w.cpuTime = 0
		return 0
	}
	for _, pid := range pids {
		w.sum += p.WrittenBytes(pid)
	}
	children, _ := cgroups.Children(path) // fails if the cgroup was removed
	for _, name := range children {
		one := before[name]
		if one == nil {
			one = new(cgroupWrites)
		}
		if w.children == nil {
			w.children = make(map[string]*cgroupWrites, len(children))
		}
		w.children[name] = one
		w.sum += one.update(cgroups, p, filepath.Join(path, name), depth-1)
	}
	return w.sum
}

// sumOfDescendants returns the number of bytes written by the processes of a cgroup and its descendants. It does not track the
// descendants individually.
func sumOfDescendants(cgroups cgroup.Reader, p process.Reader, path string) (sum uint64) {
	for left := []string{path}; len(left) > 0; {
		at := left[len(left)-1]
		left = left[:len(left)-1]
		pids, _ := cgroups.Processes(at) // fails if the cgroup was removed
		for _, pid := range pids {
			sum += p.WrittenBytes(pid)
		}
		children, _ := cgroups.Children(at)
		for _, name := range children {
			left = append(left, filepath.Join(at, name))
		}
	}
	return sum
}
