package flash

import (
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/process"
)

// maxDepth bounds how deep cgroups are kept, of which a container may make some that may do so.
// Those below are read together with the last that is kept.
const maxDepth = 8

// A wrote is what the processes of a cgroup, and of those below it, had written when they had used
// so much CPU time. Who writes uses some: as long as there is no more, nothing is looked at, and
// most pods wait most of the time.
type wrote struct {
	used  time.Duration // 0: not known
	sum   uint64        // bytes
	below map[string]*wrote
}

// now brings it up to date.
func (w *wrote) now(cgroups cgroup.Reader, p process.Reader, path string, depth int) uint64 {
	if depth == 0 {
		return deeper(cgroups, p, path)
	}
	used, _ := cgroups.Used(path) // first: what is used later shows the next time
	if used > 0 && used == w.used {
		return w.sum
	}
	before := w.below
	*w = wrote{used: used}
	pids, err := cgroups.Processes(path)
	if err != nil {
		w.used = 0
		return 0
	}
	for _, pid := range pids {
		w.sum += p.Written(pid)
	}
	children, _ := cgroups.Children(path) // gone: it has none
	for _, name := range children {
		one := before[name]
		if one == nil {
			one = new(wrote)
		}
		if w.below == nil {
			w.below = make(map[string]*wrote, len(children))
		}
		w.below[name] = one
		w.sum += one.now(cgroups, p, filepath.Join(path, name), depth-1)
	}
	return w.sum
}

// deeper is what the processes of a cgroup, and of all below it, have written: nothing of it is kept.
func deeper(cgroups cgroup.Reader, p process.Reader, path string) (sum uint64) {
	for left := []string{path}; len(left) > 0; {
		at := left[len(left)-1]
		left = left[:len(left)-1]
		pids, _ := cgroups.Processes(at) // gone: it has none
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
