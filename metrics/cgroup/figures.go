package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// Mountpoint is where the hierarchies are.
const Mountpoint = "/sys/fs/cgroup"

// v2Magic is the file system type of cgroup v2.
const v2Magic = 0x63677270

// Figures are what a cgroup and those below it have used.
type Figures struct {
	At         time.Time
	CPU        time.Duration // since its start
	Memory     uint64        // bytes, page cache included
	WorkingSet uint64        // bytes that cannot be dropped, as the kubelet counts
	RSS        uint64        // bytes of anonymous memory
	Swap       uint64        // bytes
	Limit      uint64        // bytes; 0: none
	PageFaults uint64
	MajorFault uint64
	PIDs       uint64
}

// Available is how much memory is left up to the limit, 0 without one.
func (f Figures) Available() uint64 {
	if f.Limit <= f.WorkingSet {
		return 0
	}
	return f.Limit - f.WorkingSet
}

// needed is how much of its memory a cgroup cannot do without: the working set as a kubelet counts
// it, or all of it if the cgroup is at its limit and thrashes. Then the inactive pages of files,
// which the working set leaves out since they could be dropped, are dropped, waited for and read
// again without end. Where more than an eighth of the limit could be dropped, it is not that limit for
// which processes wait, but one of a cgroup below, whose pod is to hurt no other.
func (f Figures) needed(memory *Pressure) uint64 {
	if f.Limit > 0 && f.Memory >= f.Limit-f.Limit/32 && f.WorkingSet >= f.Limit-f.Limit/8 && memory != nil && memory.Full.thrashes() {
		return f.Memory
	}
	return f.WorkingSet
}

// thrashes reports whether nothing else could run for most of the last ten seconds, and for 12
// of the last 60: the share for which systemd-oomd acts (oomd.conf(5)), in half of its time.
func (s Stall) thrashes() bool { return s.Avg10 >= 60 && s.Avg60 >= 20 }

// A Reader reads cgroups of one mount point.
type Reader struct {
	root string
	v2   bool
	proc string // empty: /proc
}

// NewReader finds out which version is mounted at root, most often Mountpoint.
func NewReader(root string) Reader {
	var st syscall.Statfs_t
	return Reader{root: root, v2: syscall.Statfs(root, &st) == nil && st.Type == v2Magic}
}

// Unified says whether this is cgroup v2.
func (r Reader) Unified() bool { return r.v2 }

// dir is the directory of a cgroup in the hierarchy of a controller; v2 has but one.
func (r Reader) dir(controller, path string) string {
	if r.v2 {
		return filepath.Join(r.root, path)
	}
	return filepath.Join(r.root, controller, path)
}

// Read reads the cgroup at path, which begins at the root of the hierarchies. The
// error wraps fs.ErrNotExist when it is gone. A controller that is missing leaves
// its figures at zero.
func (r Reader) Read(path string) (Figures, error) {
	if r.v2 && path == "/" {
		d, err := r.ReadDetails(path)
		return d.Figures, err
	}
	f := Figures{At: time.Now()}
	memory, err := open(r.dir("memory", path))
	if err != nil {
		return f, fmt.Errorf("read cgroup: %w", err)
	}
	defer memory.close()
	if r.v2 {
		f.readV2(memory)
		return f, memory.err()
	}
	cpu, pids := memory.other(r.dir("cpuacct", path)), memory.other(r.dir("pids", path))
	defer cpu.close()
	defer pids.close()
	f.readV1(memory, cpu, pids)
	return f, memory.err()
}

// Needed is how much of its memory the cgroup of some figures cannot do without, in bytes: their
// WorkingSet, or more while all its processes wait for memory, which only cgroup v2 tells of.
func (r Reader) Needed(path string, f Figures) uint64 {
	if !r.v2 {
		return f.WorkingSet
	}
	b := kernfile.Get()
	defer b.Put()
	text, _ := b.File(maxFile, r.root, path, "/memory.pressure") // an error: the kernel does not count
	return f.needed(after(nil, text))
}

// Used is the CPU time of a cgroup and of those below it, by one file: a call for who wants to know
// whether anything has run. False: it is gone, or its CPU time is not counted.
func (r Reader) Used(path string) (time.Duration, bool) {
	b := kernfile.Get()
	defer b.Put()
	if !r.v2 {
		n, ok := r.one(b, "cpuacct", path, "cpuacct.usage", nil)
		return time.Duration(n), ok
	}
	text, _ := b.File(maxFile, r.root, path, "/cpu.stat") // an error: nothing
	for line := range bytes.Lines(text) {
		if v, ok := bytes.CutPrefix(line, []byte("usage_usec ")); ok {
			n, err := strconv.ParseUint(kernfile.View(bytes.TrimSpace(v)), 10, 64)
			return micros(n), err == nil
		}
	}
	return 0, false
}

func (f *Figures) readV2(d *dir) {
	inactive := uint64(0)
	d.pairs("cpu.stat", func(k string, n uint64) {
		if k == "usage_usec" {
			f.CPU = micros(n)
		}
	})
	d.pairs("memory.stat", func(k string, n uint64) { f.statV2(k, n, &inactive) })
	f.sizesV2(d, inactive, true)
}

func (f *Figures) statV2(k string, n uint64, inactive *uint64) {
	switch k {
	case "anon":
		f.RSS = n
	case "pgfault":
		f.PageFaults = n
	case "pgmajfault":
		f.MajorFault = n
	case "inactive_file":
		*inactive = n
	}
}

func (f *Figures) sizesV2(d *dir, inactive uint64, limit bool) {
	if limit {
		f.Limit = d.number("memory.max")
	}
	f.Memory = d.number("memory.current")
	f.Swap, f.PIDs = d.number("memory.swap.current"), d.number("pids.current")
	f.WorkingSet = f.Memory - min(f.Memory, inactive)
}

func (f *Figures) readV1(memory, cpu, pids *dir) {
	inactive := uint64(0)
	memory.pairs("memory.stat", func(k string, n uint64) { f.statV1(k, n, &inactive) })
	f.CPU = time.Duration(cpu.number("cpuacct.usage"))
	f.sizesV1(memory, pids, inactive, true)
}

func (f *Figures) statV1(k string, n uint64, inactive *uint64) {
	switch k {
	case "total_rss":
		f.RSS = n
	case "total_swap":
		f.Swap = n
	case "total_pgfault":
		f.PageFaults = n
	case "total_pgmajfault":
		f.MajorFault = n
	case "total_inactive_file":
		*inactive = n
	}
}

func (f *Figures) sizesV1(memory, pids *dir, inactive uint64, limit bool) {
	if limit {
		f.Limit = bound(memory.number("memory.limit_in_bytes"))
	}
	f.Memory, f.PIDs = memory.number("memory.usage_in_bytes"), pids.number("pids.current")
	f.WorkingSet = f.Memory - min(f.Memory, inactive)
}

// bound is a limit of v1, whose kernel says "none" with a number near the largest.
func bound(n uint64) uint64 {
	if n > math.MaxInt64/2 {
		return 0
	}
	return n
}

// micros bounds what a file says.
func micros(n uint64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
}

// Processes lists the processes in a cgroup, not those below it. One that is gone has
// none.
func (r Reader) Processes(path string) ([]int, error) {
	d, err := open(r.dir("memory", path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cgroup: %w", err)
	}
	defer d.close()
	var out []int
	for f := range strings.FieldsSeq(string(d.text("cgroup.procs"))) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("read cgroup %s: %w", path, err)
		}
		out = append(out, pid)
	}
	return out, d.err()
}

// Children lists the cgroups right below one, in no order. One that is gone has none.
func (r Reader) Children(path string) ([]string, error) {
	return subdirectories(r.dir("memory", path))
}
