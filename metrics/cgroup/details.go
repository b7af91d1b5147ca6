package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// userTick is the unit of cpuacct.stat: the kernel shows it as if it were this,
// whatever it is.
const userTick = 10 * time.Millisecond

// Details are Figures with what is asked for more seldom.
type Details struct {
	Figures
	User, System  time.Duration // of CPU
	Periods       uint64        // in which a CPU quota was in force
	Throttled     uint64        // of these, those in which it was used up
	ThrottledTime time.Duration

	Cache, Mapped, Kernel    uint64 // bytes
	ActiveFile, InactiveFile uint64 // bytes
	Peak                     uint64 // bytes: the most memory so far; 0: not known
	LimitHits                uint64 // how often the limit was met
	OOMKills                 uint64
	MaxPIDs                  uint64 // 0: no limit
	Processes                uint64
	IO                       []IO // by device
}

// An IO is what was read from and written to one device.
type IO struct {
	Device                string // major:minor
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
}

// ReadDetails is Read with everything else.
func (r Reader) ReadDetails(path string) (Details, error) {
	f, err := r.Read(path)
	if err != nil {
		return Details{Figures: f}, err
	}
	d := Details{Figures: f}
	pids, err := r.Processes(path)
	d.Processes = uint64(len(pids))
	if r.v2 {
		return d, errors.Join(err, d.readV2(filepath.Join(r.root, path)))
	}
	return d, errors.Join(err, d.readV1(r.root, path))
}

func (d *Details) readV2(dir string) error {
	var errs [6]error
	var cpu, mem, events map[string]uint64
	cpu, errs[0] = pairs(filepath.Join(dir, "cpu.stat"))
	mem, errs[1] = pairs(filepath.Join(dir, "memory.stat"))
	events, errs[2] = pairs(filepath.Join(dir, "memory.events"))
	d.Peak, errs[3] = number(filepath.Join(dir, "memory.peak"))
	d.MaxPIDs, errs[4] = number(filepath.Join(dir, "pids.max"))
	d.User, d.System = time.Duration(cpu["user_usec"])*time.Microsecond, time.Duration(cpu["system_usec"])*time.Microsecond
	d.Periods, d.Throttled, d.ThrottledTime = cpu["nr_periods"], cpu["nr_throttled"], time.Duration(cpu["throttled_usec"])*time.Microsecond
	d.Cache, d.Mapped, d.Kernel = mem["file"], mem["file_mapped"], mem["kernel"]
	d.ActiveFile, d.InactiveFile = mem["active_file"], mem["inactive_file"]
	d.LimitHits, d.OOMKills = events["max"], events["oom_kill"]
	var io []byte
	if io, errs[5] = os.ReadFile(filepath.Join(dir, "io.stat")); missing(errs[5]) {
		errs[5] = nil
	}
	d.IO = parseIO(string(io))
	return errors.Join(errs[:]...)
}

// parseIO reads io.stat: "8:0 rbytes=1 wbytes=2 rios=3 wios=4 ..." for each device.
func parseIO(text string) (out []IO) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		io := IO{Device: f[0]}
		for _, kv := range f[1:] {
			k, v, _ := strings.Cut(kv, "=")
			n, err := strconv.ParseUint(v, 10, 64)
			if at := map[string]*uint64{"rbytes": &io.ReadBytes, "wbytes": &io.WriteBytes, "rios": &io.Reads, "wios": &io.Writes}[k]; at != nil && err == nil {
				*at = n
			}
		}
		out = append(out, io)
	}
	return out
}

func (d *Details) readV1(root, path string) error {
	memory, pids, cpu := filepath.Join(root, "memory", path), filepath.Join(root, "pids", path), filepath.Join(root, "cpu", path)
	var errs [8]error
	var mem, oom, stat, ticks map[string]uint64
	mem, errs[0] = pairs(filepath.Join(memory, "memory.stat"))
	oom, errs[1] = pairs(filepath.Join(memory, "memory.oom_control"))
	stat, errs[2] = pairs(filepath.Join(cpu, "cpu.stat"))
	ticks, errs[3] = pairs(filepath.Join(root, "cpuacct", path, "cpuacct.stat"))
	d.Peak, errs[4] = number(filepath.Join(memory, "memory.max_usage_in_bytes"))
	d.LimitHits, errs[5] = number(filepath.Join(memory, "memory.failcnt"))
	d.Kernel, errs[6] = number(filepath.Join(memory, "memory.kmem.usage_in_bytes"))
	d.MaxPIDs, errs[7] = number(filepath.Join(pids, "pids.max"))
	d.User, d.System = time.Duration(ticks["user"])*userTick, time.Duration(ticks["system"])*userTick
	d.Periods, d.Throttled, d.ThrottledTime = stat["nr_periods"], stat["nr_throttled"], time.Duration(stat["throttled_time"])
	d.Cache, d.Mapped = mem["total_cache"], mem["total_mapped_file"]
	d.ActiveFile, d.InactiveFile = mem["total_active_file"], mem["total_inactive_file"]
	d.OOMKills = oom["oom_kill"]
	d.IO = readIOV1(filepath.Join(root, "blkio", path))
	return errors.Join(errs[:]...)
}

// readIOV1 reads what the kernel counts whatever the scheduler of a device: lines
// such as "8:0 Read 123".
func readIOV1(dir string) (out []IO) {
	at := map[string]int{}
	for file, field := range map[string]func(*IO, string) *uint64{
		"blkio.throttle.io_service_bytes": func(io *IO, op string) *uint64 {
			return map[string]*uint64{"Read": &io.ReadBytes, "Write": &io.WriteBytes}[op]
		},
		"blkio.throttle.io_serviced": func(io *IO, op string) *uint64 {
			return map[string]*uint64{"Read": &io.Reads, "Write": &io.Writes}[op]
		},
	} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue // no such controller
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) != 3 {
				continue
			}
			if _, there := at[f[0]]; !there {
				at[f[0]] = len(out)
				out = append(out, IO{Device: f[0]})
			}
			if v := field(&out[at[f[0]]], f[1]); v != nil {
				*v, _ = strconv.ParseUint(f[2], 10, 64)
			}
		}
	}
	slices.SortFunc(out, func(a, b IO) int { return strings.Compare(a.Device, b.Device) })
	return out
}
