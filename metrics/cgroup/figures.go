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

// Mountpoint is the directory in which the cgroup hierarchies are mounted.
const Mountpoint = "/sys/fs/cgroup"

// v2Magic is the file system type of cgroup v2.
const v2Magic = 0x63677270

// Figures contains the resource usage of a cgroup and its children.
type Figures struct {
	At         time.Time
	CPU        time.Duration // CPU time since the cgroup was created
	Memory     uint64        // bytes, including the page cache
	WorkingSet uint64        // bytes that the kernel cannot reclaim easily; the same formula as in a kubelet
	RSS        uint64        // bytes of anonymous memory
	Swap       uint64        // bytes
	Limit      uint64        // bytes; 0 means no limit
	PageFaults uint64
	MajorFault uint64
	PIDs       uint64
}

// Available returns the memory in bytes that is left until the limit: the limit minus the working set. It returns 0 if there is no limit.
func (f Figures) Available() uint64 {
	if f.Limit <= f.WorkingSet {
		return 0
	}
	return f.Limit - f.WorkingSet
}

// neededMemory returns the memory in bytes that a cgroup needs. Normally this is the working set, which does not include inactive file
// pages, because the kernel can reclaim them. A cgroup that thrashes at its limit needs these pages: the kernel reclaims them and reads
// them again continuously. For such a cgroup, the result is the whole memory usage. Exception: if more than an eighth of the limit is
// reclaimable, the limit of a child causes the stall. The result is then the working set, because one pod's limit must not make the node
// evict other pods.
func (f Figures) neededMemory(memory *Pressure) uint64 {
	atLimit := f.Limit > 0 && f.Memory >= f.Limit-f.Limit/32 && f.WorkingSet >= f.Limit-f.Limit/8
	if atLimit && memory != nil && memory.Full.isThrashing() {
		return f.Memory
	}
	return f.WorkingSet
}

// isThrashing reports whether all processes were stalled for 60 % of the last 10 seconds and for 20 % of the last 60 seconds. For
// comparison, systemd-oomd kills processes if the stall is above 60 % for 30 seconds (oomd.conf(5)).
func (s Stall) isThrashing() bool { return s.Avg10 >= 60 && s.Avg60 >= 20 }

// A Reader reads cgroups below one mount point.
type Reader struct {
	root string
	v2   bool
	proc string // empty: /proc
}

// NewReader returns a Reader for the cgroup version that is mounted at root, which is normally
// Mountpoint.
func NewReader(root string) Reader {
	var st syscall.Statfs_t
	return Reader{root: root, v2: syscall.Statfs(root, &st) == nil && st.Type == v2Magic}
}

// Unified reports whether the cgroup version is v2.
func (r Reader) Unified() bool { return r.v2 }

// cgroupDir returns the directory of a cgroup in the hierarchy of a controller. There is only one hierarchy in
// cgroup v2.
func (r Reader) cgroupDir(controller, path string) string {
	if r.v2 {
		return filepath.Join(r.root, path)
	}
	return filepath.Join(r.root, controller, path)
}

// Read reads the cgroup at path, which is relative to the root of the hierarchies. The error wraps
// fs.ErrNotExist if the cgroup does not exist. The figures of a missing controller are zero.
func (r Reader) Read(path string) (Figures, error) {
	if r.v2 && path == "/" {
		d, err := r.ReadDetails(path)
		return d.Figures, err
	}
	f := Figures{At: time.Now()}
	memory, err := openDir(r.cgroupDir("memory", path))
	if err != nil {
		return f, fmt.Errorf("read cgroup: %w", err)
	}
	defer memory.close()
	if r.v2 {
		f.readV2(memory)
		return f, memory.err()
	}
	cpu, pids := memory.openOther(r.cgroupDir("cpuacct", path)), memory.openOther(r.cgroupDir("pids", path))
	defer cpu.close()
	defer pids.close()
	f.readV1(memory, cpu, pids)
	return f, memory.err()
}

// NeededMemory returns the memory in bytes that a cgroup needs. Normally this is the working set in the given figures. On cgroup v2, it is
// the whole memory usage while the cgroup thrashes at its memory limit. On cgroup v1, the kernel does not report such stalls.
func (r Reader) NeededMemory(path string, f Figures) uint64 {
	if !r.v2 {
		return f.WorkingSet
	}
	b := kernfile.Get()
	defer b.Put()
	text, _ := b.File(maxFile, r.root, path, "/memory.pressure") // after an error, which means that accounting is off, the text is empty
	return f.neededMemory(pressureFrom(nil, text))
}

// CPUTime returns the CPU time of a cgroup and its children. It reads only one file, so it is a cheap test whether a process has run. The
// second result is false if the cgroup does not exist, or if its CPU time is not counted.
func (r Reader) CPUTime(path string) (time.Duration, bool) {
	b := kernfile.Get()
	defer b.Put()
	if !r.v2 {
		n, ok := r.readNumber(b, "cpuacct", path, "cpuacct.usage", nil)
		return time.Duration(n), ok
	}
	text, _ := b.File(maxFile, r.root, path, "/cpu.stat") // on error the text is empty
	for line := range bytes.Lines(text) {
		if v, ok := bytes.CutPrefix(line, []byte("usage_usec ")); ok {
			n, err := strconv.ParseUint(kernfile.StringView(bytes.TrimSpace(v)), 10, 64)
			return fromMicros(n), err == nil
		}
	}
	return 0, false
}

func (f *Figures) readV2(d *hierarchyDir) {
	inactive := uint64(0)
	d.visitPairs("cpu.stat", func(k string, n uint64) {
		if k == "usage_usec" {
			f.CPU = fromMicros(n)
		}
	})
	d.visitPairs("memory.stat", func(k string, n uint64) { f.statV2(k, n, &inactive) })
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

func (f *Figures) sizesV2(d *hierarchyDir, inactive uint64, limit bool) {
	if limit {
		f.Limit = d.readNumber("memory.max")
	}
	f.Memory = d.readNumber("memory.current")
	f.Swap, f.PIDs = d.readNumber("memory.swap.current"), d.readNumber("pids.current")
	f.WorkingSet = WorkingSet(f.Memory, inactive)
}

func (f *Figures) readV1(memory, cpu, pids *hierarchyDir) {
	inactive := uint64(0)
	memory.visitPairs("memory.stat", func(k string, n uint64) { f.statV1(k, n, &inactive) })
	f.CPU = time.Duration(cpu.readNumber("cpuacct.usage"))
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

func (f *Figures) sizesV1(memory, pids *hierarchyDir, inactive uint64, limit bool) {
	if limit {
		f.Limit = noLimitAsZero(memory.readNumber("memory.limit_in_bytes"))
	}
	f.Memory, f.PIDs = memory.readNumber("memory.usage_in_bytes"), pids.readNumber("pids.current")
	f.WorkingSet = WorkingSet(f.Memory, inactive)
}

// noLimitAsZero converts a limit of cgroup v1. A very large number means that there is no limit, for which noLimitAsZero returns 0.
func noLimitAsZero(n uint64) uint64 {
	if n > math.MaxInt64/2 {
		return 0
	}
	return n
}

// fromMicros converts a number of microseconds without overflow.
func fromMicros(n uint64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
}

// Processes returns the PIDs of the processes in a cgroup. It omits the processes in the children
// of the cgroup. It returns no PIDs if the cgroup does not exist.
func (r Reader) Processes(path string) ([]int, error) {
	d, err := openDir(r.cgroupDir("memory", path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cgroup: %w", err)
	}
	defer d.close()
	var out []int
	for f := range strings.FieldsSeq(string(d.readText("cgroup.procs"))) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("read cgroup %s: %w", path, err)
		}
		out = append(out, pid)
	}
	return out, d.err()
}

// Children returns the names of a cgroup's direct children, in no particular order. It returns no names if
// the cgroup does not exist.
func (r Reader) Children(path string) ([]string, error) {
	return listSubdirs(r.cgroupDir("memory", path))
}

// WorkingSet returns the memory of a cgroup that cannot be reclaimed at once, in bytes, as a kubelet computes it: the usage without the
// file pages that were not used recently. https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
func WorkingSet(usage, inactiveFile uint64) uint64 { return usage - min(usage, inactiveFile) }
