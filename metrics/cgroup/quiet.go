package cgroup

import (
	"time"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// maxQuiet is how long a reading of a cgroup stays valid while none of its processes runs, and how
// long its limits do. In that time, somebody else may change a limit, or the kernel may account
// fewer pages. The node calls Recent.Forget after it changes a limit itself.
const maxQuiet = 4 * time.Minute

// maxLimits is how long limits stay valid in a cgroup whose processes run.
const maxLimits = time.Minute

// quietFor returns maxQuiet varied by the cgroup's path, so that cgroups that were read at the same
// time are not all read again at the same time.
func quietFor(path string) time.Duration {
	h := uint32(2166136261)
	for i := range len(path) {
		h = (h ^ uint32(path[i])) * 16777619
	}
	return maxQuiet - time.Duration(h%64)*(maxQuiet/128)
}

// readAfter is ReadDetails for a cgroup with an earlier reading. If CPU time and memory are
// unchanged, the cgroup was idle (quiet), and only a few files are read: most pods are idle most of
// the time, and reading all files takes ten times as long. It returns before itself if nothing has
// changed.
func (r Reader) readAfter(before *Details, path string) (d *Details, quiet bool, err error) {
	if before.CPU > 0 && before.id > 0 && time.Since(before.all) < quietFor(path) {
		if !r.v2 && r.quietV1(before, path) {
			return before, true, nil
		}
		if r.v2 {
			if d, ok := r.quietV2(before, path); ok {
				return d, true, nil
			}
		}
	}
	d, err = r.readAll(path, before)
	return d, false, err
}

// readAll reads everything, except for limits that were read a short time ago.
func (r Reader) readAll(path string, before *Details) (*Details, error) {
	d, err := r.readDetails(path, before)
	return &d, err
}

// quietV1 reports whether the earlier reading is still valid. It does not allocate memory, because
// this is most of the work of a scrape.
func (r Reader) quietV1(before *Details, path string) bool {
	b := kernfile.Get()
	defer b.Put()
	id := uint64(0)
	cpu, known := r.one(b, "cpuacct", path, "cpuacct.usage", &id)
	if !known || time.Duration(cpu) != before.CPU || id != before.id {
		return false
	}
	memory, known := r.one(b, "memory", path, "memory.usage_in_bytes", nil)
	return known && memory == before.Memory
}

// quietV2 is quietV1 and also reads the figures that change while no process runs. It returns
// before itself if nothing has changed, or else an updated copy.
func (r Reader) quietV2(before *Details, path string) (*Details, bool) {
	dir, err := open(r.dir("", path))
	if err != nil {
		return nil, false
	}
	defer dir.close()
	cpu := time.Duration(0)
	dir.pairs("cpu.stat", func(k string, n uint64) {
		if k == "usage_usec" {
			cpu = micros(n)
		}
	})
	if cpu != before.CPU || dir.inode("cpu.stat") != before.id || dir.number("memory.current") != before.Memory {
		return nil, false
	}
	all, p, same := before.readWaiting(dir)
	if same || dir.err() != nil {
		return before, dir.err() == nil
	}
	d := *before
	d.IO, d.Pressure = all, p
	return &d, true
}

// takeLimits copies the limits of before, unless they are too old or of another cgroup.
func (d *Details) takeLimits(before *Details) bool {
	if before == nil || before.id == 0 || before.id != d.id || d.At.Sub(before.limits) >= maxLimits {
		return false
	}
	d.limits, d.Created = before.limits, before.Created
	d.Shares, d.Quota, d.Period = before.Shares, before.Quota, before.Period
	d.Limit, d.Reservation, d.SwapLimit, d.MaxPIDs = before.Limit, before.Reservation, before.SwapLimit, before.MaxPIDs
	d.SwapMax, d.SwapLimited = before.SwapMax, before.SwapLimited
	return true
}
