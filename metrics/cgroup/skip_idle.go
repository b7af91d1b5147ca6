package cgroup

import (
	"time"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// maxIdle is the maximum age of the reading of an idle cgroup. A cgroup is idle if none of its processes has run since the reading. The
// limits in the reading have the same maximum age. During this time the reading may be outdated, because another program may change a
// limit, or the kernel may reclaim pages. When the node itself changes a limit, it calls CachedReader.Forget.
const maxIdle = 4 * time.Minute

// maxLimits is the time after which the limits of a cgroup are read again, unless the cgroup is idle.
const maxLimits = time.Minute

// maxIdleOf returns the maximum age of the reading of an idle cgroup. The result is at least half of maxIdle and at most maxIdle. The
// maximum age differs between cgroups, so that not all readings expire at the same time.
func maxIdleOf(path string) time.Duration {
	h := uint32(2166136261)
	for i := range len(path) {
		h = (h ^ uint32(path[i])) * 16777619
	}
	return maxIdle - time.Duration(h%64)*(maxIdle/128)
}

// readAfter is like ReadDetails, but reads only a few files if the cgroup has been idle since an earlier reading. An idle cgroup has the
// same CPU time and memory usage as before. Most pods are idle most of the time, and reading all files takes ten times as long. If no
// figure has changed, readAfter returns the earlier reading.
func (r Reader) readAfter(earlier *Details, path string) (d *Details, idle bool, err error) {
	if earlier.CPU > 0 && earlier.id > 0 && time.Since(earlier.all) < maxIdleOf(path) {
		if !r.v2 && r.isIdleV1(earlier, path) {
			return earlier, true, nil
		}
		if r.v2 {
			if d, ok := r.updateV2(earlier, path); ok {
				return d, true, nil
			}
		}
	}
	d, err = r.readAll(path, earlier)
	return d, false, err
}

// readAll reads all files. It may copy the limits from the earlier reading, as readDetails does.
func (r Reader) readAll(path string, earlier *Details) (*Details, error) {
	d, err := r.readDetails(path, earlier)
	return &d, err
}

// isIdleV1 reports whether a cgroup (v1) has been idle since the earlier reading. It allocates no memory, because a scrape spends most of
// its time in this function.
func (r Reader) isIdleV1(earlier *Details, path string) bool {
	b := kernfile.Get()
	defer b.Put()
	id := uint64(0)
	cpu, known := r.readNumber(b, "cpuacct", path, "cpuacct.usage", &id)
	if !known || time.Duration(cpu) != earlier.CPU || id != earlier.id {
		return false
	}
	memory, known := r.readNumber(b, "memory", path, "memory.usage_in_bytes", nil)
	return known && memory == earlier.Memory
}

// updateV2 updates the reading of a cgroup (v2) that has been idle. It reads only the figures that can change while no process runs. If no
// figure has changed, it returns the earlier reading, and otherwise an updated copy. It returns false if the cgroup has not been idle.
func (r Reader) updateV2(earlier *Details, path string) (*Details, bool) {
	dir, err := openDir(r.cgroupDir("", path))
	if err != nil {
		return nil, false
	}
	defer dir.close()
	cpu := time.Duration(0)
	dir.visitPairs("cpu.stat", func(k string, n uint64) {
		if k == "usage_usec" {
			cpu = fromMicros(n)
		}
	})
	if cpu != earlier.CPU || dir.inode("cpu.stat") != earlier.id || dir.readNumber("memory.current") != earlier.Memory {
		return nil, false
	}
	all, p, same := earlier.readWaiting(dir)
	if same || dir.err() != nil {
		return earlier, dir.err() == nil
	}
	d := *earlier
	d.IO, d.Pressure = all, p
	return &d, true
}

// takeLimits copies the limits of an earlier reading to d. If these limits are too old or belong to another cgroup, it copies nothing and
// returns false.
func (d *Details) takeLimits(earlier *Details) bool {
	if earlier == nil || earlier.id == 0 || earlier.id != d.id || d.At.Sub(earlier.limits) >= maxLimits {
		return false
	}
	d.limits, d.Created = earlier.limits, earlier.Created
	d.Shares, d.Quota, d.Period = earlier.Shares, earlier.Quota, earlier.Period
	d.Limit, d.Reservation, d.SwapLimit, d.MaxPIDs = earlier.Limit, earlier.Reservation, earlier.SwapLimit, earlier.MaxPIDs
	d.SwapMax, d.SwapLimited = earlier.SwapMax, earlier.SwapLimited
	return true
}
