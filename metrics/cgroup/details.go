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

	"github.com/islet-edge/islet/metrics/kernfile"
)

// userTick is the unit of cpuacct.stat. It is USER_HZ, which is 100 on every architecture that islet
// supports.
const userTick = 10 * time.Millisecond

// Details contains the limits and all figures of a cgroup. Only few callers need all figures.
type Details struct {
	Figures
	Created       time.Time     // creation time of the cgroup
	User, System  time.Duration // CPU time in user mode and in kernel mode
	Periods       uint64        // number of CPU periods that have passed with a CPU quota
	Throttled     uint64        // number of periods in which the quota was used up
	ThrottledTime time.Duration
	Bursts        uint64 // number of periods in which the CPU time exceeded the quota
	BurstTime     time.Duration
	Shares        uint64 // weight of CPU time relative to other cgroups; 0 if unknown
	Quota, Period uint64 // in microseconds; a Quota of 0 means no limit

	Cache, Mapped, Kernel    uint64 // bytes
	ActiveFile, InactiveFile uint64 // bytes
	OwnFaults, OwnMajor      uint64 // page faults of the processes in this cgroup, without its children
	Peak                     uint64 // the maximum memory usage so far in bytes; 0 if unknown
	Reservation, SwapLimit   uint64 // in bytes; 0 means no limit. With cgroup v1, SwapLimit is the limit for memory and swap together
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
	limits time.Time // time at which the limits were read
	all    time.Time // time at which all files were last read
}

// An IO contains the byte and operation counters of one block device.
type IO struct {
	Device                string // major:minor
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
}

// ReadDetails is like Read, but it reads all details.
func (r Reader) ReadDetails(path string) (Details, error) { return r.readDetails(path, nil) }

// readDetails is like ReadDetails, but it does not always read the limits. If the limits in the earlier reading are younger than maxLimits,
// it copies these limits.
func (r Reader) readDetails(path string, earlier *Details) (Details, error) {
	d := Details{Figures: Figures{At: time.Now()}}
	d.all = d.At
	memory, err := openDir(r.cgroupDir("memory", path))
	if err != nil {
		return d, fmt.Errorf("read cgroup: %w", err)
	}
	defer memory.close()
	if r.v2 {
		d.readV2(memory, earlier)
		if path == "/" {
			d.setRootV2(r.proc)
		}
		return d, memory.err()
	}
	d.readV1(r, path, memory, earlier)
	return d, memory.err()
}

// setCreated sets the creation time of a cgroup. If the kernel does not report a creation time, the
// modification time is used.
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

// countProcesses sets the number of processes and the PID of the first process. The list contains a
// PID in each line.
func (d *Details) countProcesses(list []byte) {
	first, _, _ := bytes.Cut(list, []byte("\n"))
	d.First, _ = strconv.Atoi(kernfile.StringView(first))
	d.Processes = uint64(bytes.Count(list, []byte("\n")))
}

func (d *Details) readV2(dir *hierarchyDir, earlier *Details) {
	d.id = dir.inode("cpu.stat")
	known := d.takeLimits(earlier)
	dir.visitPairs("cpu.stat", func(k string, n uint64) {
		switch k {
		case "usage_usec":
			d.CPU = fromMicros(n)
		case "user_usec":
			d.User = fromMicros(n)
		case "system_usec":
			d.System = fromMicros(n)
		case "nr_periods":
			d.Periods = n
		case "nr_throttled":
			d.Throttled = n
		case "throttled_usec":
			d.ThrottledTime = fromMicros(n)
		case "nr_bursts":
			d.Bursts = n
		case "burst_usec":
			d.BurstTime = fromMicros(n)
		}
	})
	dir.visitPairs("memory.stat", func(k string, n uint64) {
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
	d.countProcesses(dir.readText("cgroup.procs"))
	d.sizesV2(dir, d.InactiveFile, !known)
	dir.visitPairs("memory.events", func(k string, n uint64) {
		switch k {
		case "high":
			d.Reclaim.Throttles = n
		case "max":
			d.LimitHits = n
		case "oom_kill":
			d.OOMKills = n
		}
	})
	d.Peak = dir.readNumber("memory.peak")
	d.IO, d.Pressure, _ = cmp.Or(earlier, d).readWaiting(dir)
	if known {
		return
	}
	d.setCreated(dir.fd)
	d.limits, d.MaxPIDs = d.At, dir.readNumber("pids.max")
	// At most one of memory.min and memory.low has a value, depending on the pod's QoS class.
	d.Reservation = max(dir.readNumber("memory.min"), dir.readNumber("memory.low"))
	d.SwapMax, d.SwapLimited = dir.readLimit("memory.swap.max")
	d.SwapLimit = d.SwapMax
	d.Quota, d.Period = dir.readNumbers("cpu.max")
	d.Shares = sharesOf(dir.readNumber("cpu.weight"))
}

// readWaiting reads the figures that can change while no process runs: the I/O counters and the pressures. It reuses values of the receiver
// that have not changed. The last result is true if no value has changed.
func (d *Details) readWaiting(dir *hierarchyDir) (all []IO, p Pressures, same bool) {
	all, same = parseIO(dir.readText("io.stat"), d.IO)
	p.CPU = dir.readPressure("cpu.pressure", d.Pressure.CPU)
	p.Memory = dir.readPressure("memory.pressure", d.Pressure.Memory)
	p.IO = dir.readPressure("io.pressure", d.Pressure.IO)
	return all, p, same && p == d.Pressure
}

// sharesOf converts a weight of cgroup v2 to CPU shares, as cAdvisor does. It is the inverse of the linear conversion in older OCI
// runtimes. The weights of pods and QoS classes come from a newer conversion, so their shares are too large.
func sharesOf(weight uint64) uint64 {
	if weight == 0 {
		return 0
	}
	return 2 + (min(weight, 10000)-1)*262142/9999
}

// parseIO parses io.stat, which has a line "8:0 rbytes=1 wbytes=2 rios=3 wios=4 ..." for each device. If no counter has changed, it returns
// the earlier list and true.
func parseIO(text []byte, earlier []IO) (out []IO, same bool) {
	n := 0
	for line := range bytes.Lines(text) {
		io, ok := parseDevice(line)
		switch {
		case !ok:
		case out == nil && n < len(earlier) && earlier[n] == io:
			n++
		default:
			if out == nil {
				out = append(make([]IO, 0, n+1), earlier[:n]...)
			}
			io.Device = strings.Clone(io.Device)
			out = append(out, io)
		}
	}
	switch {
	case out != nil:
		return out, false
	case n < len(earlier): // the file has fewer devices than before
		return slices.Clone(earlier[:n]), false
	}
	return earlier, true
}

// parseDevice parses a line of io.stat. The returned device name shares the memory of the line.
func parseDevice(line []byte) (io IO, ok bool) {
	device, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
	if len(rest) == 0 {
		return io, false
	}
	io.Device = kernfile.StringView(device)
	for kv := range bytes.FieldsSeq(rest) {
		k, v, _ := bytes.Cut(kv, []byte("="))
		n, err := strconv.ParseUint(kernfile.StringView(v), 10, 64)
		if at := io.findField(kernfile.StringView(k)); at != nil && err == nil {
			*at = n
		}
	}
	return io, true
}

func (io *IO) findField(name string) *uint64 {
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
