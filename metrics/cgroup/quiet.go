package cgroup

import (
	"time"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// maxQuiet is how long what was read of a cgroup may stand for it while none of its processes
// runs, and how long its limits may. Somebody else may change a limit meanwhile, or the kernel
// take pages for used less; Recent.Forget tells of a limit that the node itself changed.
const maxQuiet = 4 * time.Minute

// maxLimits is the same of the limits of one that is read as a whole.
const maxLimits = time.Minute

// quietFor is how long that is for one cgroup: those that were read at one time are not all
// read as a whole again at one time.
func quietFor(path string) time.Duration {
	h := uint32(2166136261)
	for i := range len(path) {
		h = (h ^ uint32(path[i])) * 16777619
	}
	return maxQuiet - time.Duration(h%64)*(maxQuiet/128)
}

// readAfter is ReadDetails of a cgroup that was read before. One whose CPU time and memory are
// the same has done nothing since (quiet): most pods of a node wait most of the time, and to read
// all of their files takes ten times as long. It gives before itself where nothing has changed.
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

// readAll reads everything, but for limits that were read shortly before.
func (r Reader) readAll(path string, before *Details) (*Details, error) {
	d, err := r.readDetails(path, before)
	return &d, err
}

// quietV1 reports whether what was read before still holds. It makes no garbage: most of a
// scrape is this.
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

// quietV2 is quietV1, with what changes by itself as it is now: before itself when nothing has,
// else a copy.
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
	all, p, same := before.waits(dir)
	if same || dir.err() != nil {
		return before, dir.err() == nil
	}
	d := *before
	d.IO, d.Pressure = all, p
	return &d, true
}

// takeLimits takes the limits of before, unless they are old or of another cgroup.
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
