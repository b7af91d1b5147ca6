package cgroup

import (
	"time"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// maxQuiet is the time for which a reading of a cgroup stays valid while none of its processes runs. The
// limits in the reading stay valid for the same time. In this time another program may change a limit, or
// the kernel may account fewer pages. When the node itself changes a limit, it calls Recent.Forget.
const maxQuiet = 4 * time.Minute

// maxLimits is the time for which limits stay valid while processes of the cgroup run.
const maxLimits = time.Minute

// quietFor returns a time near maxQuiet that depends on the cgroup's path. So cgroups that were read at the
// same time are not read again at the same time.
func quietFor(path string) time.Duration {
	h := uint32(2166136261)
	for i := range len(path) {
		h = (h ^ uint32(path[i])) * 16777619
	}
	return maxQuiet - time.Duration(h%64)*(maxQuiet/128)
}

// readAfter is like ReadDetails, with an earlier reading of the cgroup. If CPU time and memory are
// unchanged, the cgroup was idle (quiet) and readAfter reads only a few files. Most pods are idle most of
// the time, and reading all files takes ten times as long. If nothing has changed, readAfter returns
// before.
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

// readAll reads all files. It copies limits that were read a short time ago.
func (r Reader) readAll(path string, before *Details) (*Details, error) {
	d, err := r.readDetails(path, before)
	return &d, err
}

// quietV1 reports whether the earlier reading is still valid. It does not allocate memory, because a scrape
// consists mainly of such calls.
func (r Reader) quietV1(before *Details, path string) bool {
	b := kernfile.Get()
	defer b.Put()
	id := uint64(0)
	cpu, known := r.readNumber(b, "cpuacct", path, "cpuacct.usage", &id)
	if !known || time.Duration(cpu) != before.CPU || id != before.id {
		return false
	}
	memory, known := r.readNumber(b, "memory", path, "memory.usage_in_bytes", nil)
	return known && memory == before.Memory
}

// quietV2 is like quietV1. It also reads the figures that change while no process runs. If nothing has
// changed, it returns the pointer before. Otherwise it returns an updated copy.
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

// takeLimits copies the limits of before. It does not copy limits that are too old or belong to another
// cgroup.
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
