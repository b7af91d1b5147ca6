package cgroup

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/sorting"
	"github.com/islet-edge/islet/metrics/kernfile"
)

func (d *Details) readV1(r Reader, path string, memory *hierarchyDir, earlier *Details) {
	acct := memory.openOther(r.cgroupDir("cpuacct", path))
	pids := memory.openOther(r.cgroupDir("pids", path))
	blkio := memory.openOther(r.cgroupDir("blkio", path))
	defer acct.close()
	defer pids.close()
	defer blkio.close()
	d.id = acct.inode("cpuacct.usage")
	d.CPU = time.Duration(acct.readNumber("cpuacct.usage")) // must be read first: if a process runs now, the next reading differs
	known := d.takeLimits(earlier)
	d.countProcesses(memory.readText("cgroup.procs"))
	memory.visitPairs("memory.stat", func(k string, n uint64) {
		d.statV1(k, n, &d.InactiveFile)
		switch k {
		case "total_cache":
			d.Cache = n
		case "total_mapped_file":
			d.Mapped = n
		case "total_active_file":
			d.ActiveFile = n
		case "pgfault":
			d.OwnFaults = n
		case "pgmajfault":
			d.OwnMajor = n
		}
	})
	d.sizesV1(memory, pids, d.InactiveFile, !known)
	memory.visitPairs("memory.oom_control", func(k string, n uint64) {
		if k == "oom_kill" {
			d.OOMKills = n
		}
	})
	d.Peak, d.LimitHits = memory.readNumber("memory.max_usage_in_bytes"), memory.readNumber("memory.failcnt")
	d.Kernel = memory.readNumber("memory.kmem.usage_in_bytes")
	acct.visitPairs("cpuacct.stat", func(k string, n uint64) {
		switch t := time.Duration(min(n, 1<<40)) * userTick; k {
		case "user":
			d.User = t
		case "system":
			d.System = t
		}
	})
	d.ioV1(blkio)
	if known && d.Quota == 0 { // without a quota, the cgroup was never throttled
		return
	}
	cpu := memory.openOther(r.cgroupDir("cpu", path))
	defer cpu.close()
	d.cpuV1(cpu)
	if known {
		return
	}
	d.setCreated(memory.fd)
	d.limits, d.MaxPIDs = d.At, pids.readNumber("pids.max")
	d.Reservation = noLimitAsZero(memory.readNumber("memory.soft_limit_in_bytes"))
	d.SwapLimit = noLimitAsZero(memory.readNumber("memory.memsw.limit_in_bytes"))
	d.SwapLimited = d.SwapLimit > 0 && d.Limit > 0
	if d.SwapLimited {
		d.SwapMax = d.SwapLimit - min(d.SwapLimit, d.Limit)
	}
	d.Shares, d.Period, d.Quota = cpu.readNumber("cpu.shares"), cpu.readNumber("cpu.cfs_period_us"), cpu.readNumber("cpu.cfs_quota_us")
}

func (d *Details) cpuV1(cpu *hierarchyDir) {
	cpu.visitPairs("cpu.stat", func(k string, n uint64) {
		switch k {
		case "nr_periods":
			d.Periods = n
		case "nr_throttled":
			d.Throttled = n
		case "throttled_time":
			d.ThrottledTime = time.Duration(n)
		case "nr_bursts":
			d.Bursts = n
		case "burst_time":
			d.BurstTime = time.Duration(n)
		}
	})
}

// ioV1 reads the I/O counters of the cgroup and its children. It uses the files blkio.throttle.*, which do not depend on the I/O scheduler
// of a device. An example of a line is "8:0 Read 123".
func (d *Details) ioV1(blkio *hierarchyDir) {
	at := func(device string) *IO {
		i := slices.IndexFunc(d.IO, func(io IO) bool { return io.Device == device })
		if i < 0 {
			i, d.IO = len(d.IO), append(d.IO, IO{Device: strings.Clone(device)})
		}
		return &d.IO[i]
	}
	read := func(file string, each func(io *IO, op string, n uint64)) {
		text := blkio.readText(file + "_recursive")
		if len(text) == 0 {
			text = blkio.readText(file)
		}
		for line := range bytes.Lines(text) {
			device, rest, _ := strings.Cut(strings.TrimSpace(kernfile.StringView(line)), " ")
			op, v, ok := strings.Cut(rest, " ")
			if n, err := strconv.ParseUint(v, 10, 64); ok && err == nil {
				each(at(device), op, n)
			}
		}
	}
	read("blkio.throttle.io_service_bytes", func(io *IO, op string, n uint64) {
		switch op {
		case "Read":
			io.ReadBytes = n
		case "Write":
			io.WriteBytes = n
		}
	})
	read("blkio.throttle.io_serviced", func(io *IO, op string, n uint64) {
		switch op {
		case "Read":
			io.Reads = n
		case "Write":
			io.Writes = n
		}
	})
	sorting.By(d.IO, func(a, b IO) int { return strings.Compare(a.Device, b.Device) })
}
