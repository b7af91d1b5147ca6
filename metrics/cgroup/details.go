package cgroup

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/sorting"
	"github.com/islet-edge/islet/metrics/kernfile"
)

// userTick is the unit of cpuacct.stat. It is USER_HZ, which is 100 on every architecture that islet
// supports.
const userTick = 10 * time.Millisecond

// Details contains Figures, and the figures that are needed less often.
type Details struct {
	Figures
	Created       time.Time     // creation time of the cgroup
	User, System  time.Duration // of CPU
	Periods       uint64        // number of periods in which a CPU quota was in force
	Throttled     uint64        // number of periods that exhausted the quota
	ThrottledTime time.Duration
	Bursts        uint64 // number of periods with more CPU time than the quota
	BurstTime     time.Duration
	Shares        uint64 // weight of CPU time relative to other cgroups; 0 if unknown
	Quota, Period uint64 // in microseconds; a Quota of 0 means no limit

	Cache, Mapped, Kernel    uint64 // bytes
	ActiveFile, InactiveFile uint64 // bytes
	OwnFaults, OwnMajor      uint64 // page faults of the processes in this cgroup, without its children
	Peak                     uint64 // the maximum memory usage so far in bytes; 0 if unknown
	Reservation, SwapLimit   uint64 // in bytes; 0 means no limit. With cgroup v1, SwapLimit is the limit of memory and swap together
	SwapMax                  uint64 // limit of swap in bytes; only valid if SwapLimited
	SwapLimited              bool
	LimitHits                uint64 // number of times that the memory limit was reached
	OOMKills                 uint64
	Reclaim                  Reclaim
	MaxPIDs                  uint64 // 0 means no limit
	Processes                uint64 // number of processes in this cgroup, without its children
	First                    int    // PID of one of these processes; 0 if there is none
	IO                       []IO   // by device
	Pressure                 Pressures

	id     uint64    // inode number, which identifies the cgroup while it exists
	limits time.Time // time when the limits were read
	all    time.Time // time when all files were read
}

// An IO contains the byte and operation counters of one block device.
type IO struct {
	Device                string // major:minor
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
}

// Pressures contains the pressure stall information of a cgroup. A field is nil if the kernel does not
// provide it. See https://docs.kernel.org/accounting/psi.html.
type Pressures struct{ CPU, Memory, IO *Pressure }

// A Pressure contains the times for which processes waited for a resource.
type Pressure struct{ Some, Full Stall }

// A Stall is the time for which some or all processes waited: the total time, and percentages of the last
// 10, 60 and 300 seconds.
type Stall struct {
	Total                time.Duration
	Avg10, Avg60, Avg300 float64
}

// ReadDetails is like Read, but it reads all details.
func (r Reader) ReadDetails(path string) (Details, error) { return r.readDetails(path, nil) }

// readDetails is like ReadDetails. It copies the limits of last, an earlier reading, if they were read less than
// maxLimits ago.
func (r Reader) readDetails(path string, last *Details) (Details, error) {
	d := Details{Figures: Figures{At: time.Now()}}
	d.all = d.At
	memory, err := open(r.dir("memory", path))
	if err != nil {
		return d, fmt.Errorf("read cgroup: %w", err)
	}
	defer memory.close()
	if r.v2 {
		d.readV2(memory, last)
		if path == "/" {
			d.rootV2(r.proc)
		}
		return d, memory.err()
	}
	d.readV1(r, path, memory, last)
	return d, memory.err()
}

// setCreated sets the creation time of a cgroup. If it is not known, it sets the modification time.
func (d *Details) setCreated(fd int) {
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME|unix.STATX_MTIME, &st) != nil {
		return
	}
	t := st.Mtime
	if st.Mask&unix.STATX_BTIME != 0 {
		t = st.Btime
	}
	d.Created = time.Unix(t.Sec, int64(t.Nsec))
}

// count sets the figures that follow from the list of processes.
func (d *Details) count(list []byte) {
	first, _, _ := bytes.Cut(list, []byte("\n"))
	d.First, _ = strconv.Atoi(kernfile.View(first))
	d.Processes = uint64(bytes.Count(list, []byte("\n")))
}

func (d *Details) readV2(dir *dir, last *Details) {
	d.id = dir.inode("cpu.stat")
	known := d.takeLimits(last)
	dir.pairs("cpu.stat", func(k string, n uint64) {
		switch k {
		case "usage_usec":
			d.CPU = micros(n)
		case "user_usec":
			d.User = micros(n)
		case "system_usec":
			d.System = micros(n)
		case "nr_periods":
			d.Periods = n
		case "nr_throttled":
			d.Throttled = n
		case "throttled_usec":
			d.ThrottledTime = micros(n)
		case "nr_bursts":
			d.Bursts = n
		case "burst_usec":
			d.BurstTime = micros(n)
		}
	})
	dir.pairs("memory.stat", func(k string, n uint64) {
		d.statV2(k, n, &d.InactiveFile)
		switch k {
		case "file":
			d.Cache = n
		case "file_mapped":
			d.Mapped = n
		case "kernel":
			d.Kernel = n
		case "active_file":
			d.ActiveFile = n
		default:
			d.Reclaim.stat(k, n)
		}
	})
	d.Reclaim.Counted = true
	d.OwnFaults, d.OwnMajor = d.PageFaults, d.MajorFault
	d.count(dir.text("cgroup.procs"))
	d.sizesV2(dir, d.InactiveFile, !known)
	dir.pairs("memory.events", func(k string, n uint64) {
		switch k {
		case "high":
			d.Reclaim.Throttles = n
		case "max":
			d.LimitHits = n
		case "oom_kill":
			d.OOMKills = n
		}
	})
	d.Peak = dir.number("memory.peak")
	d.IO, d.Pressure, _ = cmp.Or(last, d).readWaiting(dir)
	if known {
		return
	}
	d.setCreated(dir.fd)
	d.limits, d.MaxPIDs = d.At, dir.number("pids.max")
	d.Reservation = max(dir.number("memory.min"), dir.number("memory.low")) // the pod's QoS class determines which one is set
	d.SwapMax, d.SwapLimited = dir.limit("memory.swap.max")
	d.SwapLimit = d.SwapMax
	d.Quota, d.Period = dir.numbers("cpu.max")
	d.Shares = sharesOf(dir.number("cpu.weight"))
}

// readWaiting reads the figures that can change while no process runs: the I/O counters, and the time for which
// processes waited. Values that are equal to those of last are not copied. same reports whether all are equal.
func (d *Details) readWaiting(dir *dir) (all []IO, p Pressures, same bool) {
	all, same = parseIO(dir.text("io.stat"), d.IO)
	p.CPU = dir.pressure("cpu.pressure", d.Pressure.CPU)
	p.Memory = dir.pressure("memory.pressure", d.Pressure.Memory)
	p.IO = dir.pressure("io.pressure", d.Pressure.IO)
	return all, p, same && p == d.Pressure
}

// sharesOf converts a weight of cgroup v2 to CPU shares. It is the inverse of the conversion in OCI runtimes.
func sharesOf(weight uint64) uint64 {
	if weight == 0 {
		return 0
	}
	return 2 + (min(weight, 10000)-1)*262142/9999
}

// parseIO parses io.stat: "8:0 rbytes=1 wbytes=2 rios=3 wios=4 ..." for each device. If the
// counters are equal to last, it returns last itself.
func parseIO(text []byte, last []IO) (out []IO, same bool) {
	n := 0
	for line := range bytes.Lines(text) {
		io, ok := parseDevice(line)
		switch {
		case !ok:
		case out == nil && n < len(last) && last[n] == io:
			n++
		default:
			if out == nil {
				out = append(make([]IO, 0, n+1), last[:n]...)
			}
			io.Device = strings.Clone(io.Device)
			out = append(out, io)
		}
	}
	switch {
	case out != nil:
		return out, false
	case n < len(last): // some devices were removed
		return slices.Clone(last[:n]), false
	}
	return last, true
}

// parseDevice parses a line of io.stat. The name of the device is a slice of line, not a copy.
func parseDevice(line []byte) (io IO, ok bool) {
	device, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
	if len(rest) == 0 {
		return io, false
	}
	io.Device = kernfile.View(device)
	for kv := range bytes.FieldsSeq(rest) {
		k, v, _ := bytes.Cut(kv, []byte("="))
		n, err := strconv.ParseUint(kernfile.View(v), 10, 64)
		if at := io.field(kernfile.View(k)); at != nil && err == nil {
			*at = n
		}
	}
	return io, true
}

func (io *IO) field(name string) *uint64 {
	switch name {
	case "rbytes":
		return &io.ReadBytes
	case "wbytes":
		return &io.WriteBytes
	case "rios":
		return &io.Reads
	case "wios":
		return &io.Writes
	}
	return nil
}

// pressure parses "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" and the same with full. It returns nil
// if the file does not exist or if accounting is off. If the values are equal to last, it returns last itself.
func (d *dir) pressure(file string, last *Pressure) *Pressure {
	return pressureFrom(last, d.text(file))
}

func pressureFrom(last *Pressure, text []byte) *Pressure {
	now, ok := parsePressure(text)
	switch {
	case !ok:
		return nil
	case last != nil && *last == now:
		return last
	}
	p := now
	return &p
}

// ReadPressures reads the pressures of the machine from a directory, normally /proc/pressure.
func ReadPressures(dir string) Pressures {
	b := kernfile.Get()
	defer b.Put()
	read := func(name string) *Pressure {
		text, _ := b.File(maxFile, dir, "/", name) // the kernel may not have the file, or accounting may be off
		return pressureFrom(nil, text)
	}
	return Pressures{read("cpu"), read("memory"), read("io")}
}

// parsePressure parses a pressure file. found reports whether the file contains a pressure.
func parsePressure(text []byte) (p Pressure, found bool) {
	for line := range bytes.Lines(text) {
		kind, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		s := &p.Some
		switch string(kind) {
		case "some":
		case "full":
			s = &p.Full
		default:
			continue
		}
		found = true
		for kv := range bytes.FieldsSeq(rest) {
			k, v, _ := bytes.Cut(kv, []byte("="))
			switch string(k) {
			case "total":
				n, _ := strconv.ParseUint(kernfile.View(v), 10, 64)
				s.Total = micros(n)
			case "avg10":
				s.Avg10, _ = strconv.ParseFloat(kernfile.View(v), 64)
			case "avg60":
				s.Avg60, _ = strconv.ParseFloat(kernfile.View(v), 64)
			case "avg300":
				s.Avg300, _ = strconv.ParseFloat(kernfile.View(v), 64)
			}
		}
	}
	return p, found
}

func (d *Details) readV1(r Reader, path string, memory *dir, last *Details) {
	acct := memory.openOther(r.dir("cpuacct", path))
	pids := memory.openOther(r.dir("pids", path))
	blkio := memory.openOther(r.dir("blkio", path))
	defer acct.close()
	defer pids.close()
	defer blkio.close()
	d.id = acct.inode("cpuacct.usage")
	d.CPU = time.Duration(acct.number("cpuacct.usage")) // read first, so that CPU time used from now on changes the next reading
	known := d.takeLimits(last)
	d.count(memory.text("cgroup.procs"))
	memory.pairs("memory.stat", func(k string, n uint64) {
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
	memory.pairs("memory.oom_control", func(k string, n uint64) {
		if k == "oom_kill" {
			d.OOMKills = n
		}
	})
	d.Peak, d.LimitHits = memory.number("memory.max_usage_in_bytes"), memory.number("memory.failcnt")
	d.Kernel = memory.number("memory.kmem.usage_in_bytes")
	acct.pairs("cpuacct.stat", func(k string, n uint64) {
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
	cpu := memory.openOther(r.dir("cpu", path))
	defer cpu.close()
	d.cpuV1(cpu)
	if known {
		return
	}
	d.setCreated(memory.fd)
	d.limits, d.MaxPIDs = d.At, pids.number("pids.max")
	d.Reservation = noLimitAsZero(memory.number("memory.soft_limit_in_bytes"))
	d.SwapLimit = noLimitAsZero(memory.number("memory.memsw.limit_in_bytes"))
	d.SwapLimited = d.SwapLimit > 0 && d.Limit > 0
	if d.SwapLimited {
		d.SwapMax = d.SwapLimit - min(d.SwapLimit, d.Limit)
	}
	d.Shares, d.Period, d.Quota = cpu.number("cpu.shares"), cpu.number("cpu.cfs_period_us"), cpu.number("cpu.cfs_quota_us")
}

func (d *Details) cpuV1(cpu *dir) {
	cpu.pairs("cpu.stat", func(k string, n uint64) {
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

// ioV1 reads the I/O counters of the cgroup and its children that do not depend on a device's scheduler. A
// line is, for example, "8:0 Read 123".
func (d *Details) ioV1(blkio *dir) {
	at := func(device string) *IO {
		i := slices.IndexFunc(d.IO, func(io IO) bool { return io.Device == device })
		if i < 0 {
			i, d.IO = len(d.IO), append(d.IO, IO{Device: strings.Clone(device)})
		}
		return &d.IO[i]
	}
	read := func(file string, each func(io *IO, op string, n uint64)) {
		text := blkio.text(file + "_recursive")
		if len(text) == 0 {
			text = blkio.text(file)
		}
		for line := range bytes.Lines(text) {
			device, rest, _ := strings.Cut(strings.TrimSpace(kernfile.View(line)), " ")
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
