package cgroup

import (
	"time"

	"golang.org/x/sys/unix"
)

// maxQuiet is how long what was read of a cgroup may stand for it while none of its processes
// runs, and how long its limits may. Somebody else may change a limit meanwhile, or the kernel
// take pages for used less; Recent.Forget tells of a limit that the node itself changed.
const maxQuiet = time.Minute

// readAfter is ReadDetails of a cgroup that was read before. One whose CPU time and memory are
// the same has done nothing since: most pods of a node wait most of the time, and to read all
// of their files takes ten times as long.
func (r Reader) readAfter(before *Details, path string) (Details, error) {
	if before.CPU > 0 && before.id > 0 && time.Since(before.all) < maxQuiet {
		if d := *before; r.quiet(&d, path) {
			return d, nil
		}
	}
	return r.readDetails(path, before)
}

// quiet reports whether d still holds, and brings up to date what changes by itself.
func (r Reader) quiet(d *Details, path string) bool {
	now, before := time.Now(), *d
	if r.v2 {
		dir, err := open(r.dir("", path))
		if err != nil {
			return false
		}
		defer dir.close()
		dir.pairs("cpu.stat", func(k string, n uint64) {
			if k == "usage_usec" {
				d.CPU = micros(n)
			}
		})
		if d.CPU != before.CPU || dir.inode("cpu.stat") != before.id || d.Memory != dir.number("memory.current") {
			return false
		}
		d.waitsV2(dir)
		d.At, d.Quiet = now, true
		return dir.err() == nil
	}
	b := buffers.Get().(*buffer)
	b.err = nil
	defer buffers.Put(b)
	at := dir{fd: unix.AT_FDCWD, buffer: b}
	usage := r.dir("cpuacct", path) + "/cpuacct.usage"
	if time.Duration(at.number(usage)) != before.CPU || at.inode(usage) != before.id || at.number(r.dir("memory", path)+"/memory.usage_in_bytes") != before.Memory {
		return false
	}
	d.At, d.Quiet = now, true
	return b.err == nil
}

// takeLimits takes the limits of before, unless they are old or of another cgroup.
func (d *Details) takeLimits(before *Details) bool {
	if before == nil || before.id == 0 || before.id != d.id || d.At.Sub(before.limits) >= maxQuiet {
		return false
	}
	d.limits, d.Created = before.limits, before.Created
	d.Shares, d.Quota, d.Period = before.Shares, before.Quota, before.Period
	d.Limit, d.Reservation, d.SwapLimit, d.MaxPIDs = before.Limit, before.Reservation, before.SwapLimit, before.MaxPIDs
	return true
}
