package cgroup

import (
	"time"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// maxQuiet is the time for which a reading of a cgroup stays valid while none of its processes runs. The limits in the
// reading stay valid for the same time. The reading may become wrong in this time: another program may change a limit,
// or the kernel may reclaim pages. When the node itself changes a limit, it calls Recent.Forget.
const maxQuiet = 4 * time.Minute

// maxLimits is the time for which limits stay valid while processes of the cgroup run.
const maxLimits = time.Minute

// quietFor returns the time for which a reading of an idle cgroup stays valid. It is near maxQuiet and differs between
// cgroups, so that they are not all read again at the same time.
func quietFor(path string) time.Duration {
	h := uint32(2166136261)
	for i := range len(path) {
		h = (h ^ uint32(path[i])) * 16777619
	}
	return maxQuiet - time.Duration(h%64)*(maxQuiet/128)
}

// readAfter is like ReadDetails, but it may reuse last, an earlier reading of the cgroup. If CPU time and memory usage
// are unchanged, the cgroup was idle (quiet), and readAfter reads only a few files. Most pods are idle most of the
// time, and reading all files takes ten times as long. If nothing has changed, readAfter returns last itself.
func (r Reader) readAfter(last *Details, path string) (d *Details, quiet bool, err error) {
	if last.CPU > 0 && last.id > 0 && time.Since(last.all) < quietFor(path) {
		if !r.v2 && r.quietV1(last, path) {
			return last, true, nil
		}
		if r.v2 {
			if d, ok := r.quietV2(last, path); ok {
				return d, true, nil
			}
		}
	}
	d, err = r.readAll(path, last)
	return d, false, err
}

// readAll reads all files. It copies limits that were read a short time ago.
func (r Reader) readAll(path string, last *Details) (*Details, error) {
	d, err := r.readDetails(path, last)
	return &d, err
}

// quietV1 reports whether the earlier reading last is still valid. It allocates no memory, because most of a scrape's
// time is spent in such calls.
func (r Reader) quietV1(last *Details, path string) bool {
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

// quietV2 is like quietV1. It also reads the figures that change while no process runs. If nothing has changed, it
// returns last itself. Otherwise it returns an updated copy.
func (r Reader) quietV2(last *Details, path string) (*Details, bool) {
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
	if cpu != last.CPU || dir.inode("cpu.stat") != last.id || dir.number("memory.current") != last.Memory {
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

// takeLimits copies the limits of last to d, and reports whether it did. It does not copy limits that are too old or
// belong to another cgroup.
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
