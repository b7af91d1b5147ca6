package cgroup

import (
	"time"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// maxIdle is the maximum age of a reading of an idle cgroup, that is, a cgroup none of whose processes has run since.
// The limits in the reading have the same maximum age. The reading may be outdated meanwhile, because another program
// may change a limit, or the kernel may reclaim pages. When the node itself changes a limit, it calls Recent.Forget.
const maxIdle = 4 * time.Minute

// maxLimits is the maximum age of the limits of a cgroup whose processes run.
const maxLimits = time.Minute

// maxIdleOf returns the maximum age of a reading of an idle cgroup. It is near maxIdle and differs between cgroups, so
// that they are not all read again at the same time.
func maxIdleOf(path string) time.Duration {
	h := uint32(2166136261)
	for i := range len(path) {
		h = (h ^ uint32(path[i])) * 16777619
	}
	return maxIdle - time.Duration(h%64)*(maxIdle/128)
}

// readAfter is like ReadDetails, but it may reuse last, an earlier reading of the cgroup. If CPU time and memory usage
// are unchanged, the cgroup was idle, and readAfter reads only a few files. Most pods are idle most of the time, and
// reading all files takes ten times as long. If no figure has changed, readAfter returns last itself.
func (r Reader) readAfter(last *Details, path string) (d *Details, idle bool, err error) {
	if last.CPU > 0 && last.id > 0 && time.Since(last.all) < maxIdleOf(path) {
		if !r.v2 && r.isIdleV1(last, path) {
			return last, true, nil
		}
		if r.v2 {
			if d, ok := r.updateV2(last, path); ok {
				return d, true, nil
			}
		}
	}
	d, err = r.readAll(path, last)
	return d, false, err
}

// readAll reads all files. It copies the limits from last, as readDetails does.
func (r Reader) readAll(path string, last *Details) (*Details, error) {
	d, err := r.readDetails(path, last)
	return &d, err
}

// isIdleV1 reports whether the cgroup was idle since the earlier reading last. It allocates no memory, because a
// scrape spends most of its time in such calls.
func (r Reader) isIdleV1(last *Details, path string) bool {
	b := kernfile.Get()
	defer b.Put()
	id := uint64(0)
	cpu, known := r.readNumber(b, "cpuacct", path, "cpuacct.usage", &id)
	if !known || time.Duration(cpu) != last.CPU || id != last.id {
		return false
	}
	memory, known := r.readNumber(b, "memory", path, "memory.usage_in_bytes", nil)
	return known && memory == last.Memory
}

// updateV2 updates a reading of an idle cgroup with the figures that change while no process runs. If no figure
// has changed, it returns last itself, otherwise an updated copy. It returns false if the cgroup was not idle.
func (r Reader) updateV2(last *Details, path string) (*Details, bool) {
	dir, err := open(r.dir("", path))
	if err != nil {
		return nil, false
	}
	defer dir.close()
	cpu := time.Duration(0)
	dir.visitPairs("cpu.stat", func(k string, n uint64) {
		if k == "usage_usec" {
			cpu = micros(n)
		}
	})
	if cpu != last.CPU || dir.inode("cpu.stat") != last.id || dir.readNumber("memory.current") != last.Memory {
		return nil, false
	}
	all, p, same := last.readWaiting(dir)
	if same || dir.err() != nil {
		return last, dir.err() == nil
	}
	d := *last
	d.IO, d.Pressure = all, p
	return &d, true
}

// takeLimits copies the limits of last to d. It returns false, without copying, if the limits are too old or belong
// to another cgroup.
func (d *Details) takeLimits(last *Details) bool {
	if last == nil || last.id == 0 || last.id != d.id || d.At.Sub(last.limits) >= maxLimits {
		return false
	}
	d.limits, d.Created = last.limits, last.Created
	d.Shares, d.Quota, d.Period = last.Shares, last.Quota, last.Period
	d.Limit, d.Reservation, d.SwapLimit, d.MaxPIDs = last.Limit, last.Reservation, last.SwapLimit, last.MaxPIDs
	d.SwapMax, d.SwapLimited = last.SwapMax, last.SwapLimited
	return true
}
