package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
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

// A Reader reads cgroups of one mount point.
type Reader struct {
	root string
	v2   bool
}

// NewReader finds out which version is mounted at root, most often Mountpoint.
func NewReader(root string) Reader {
	var st syscall.Statfs_t
	return Reader{root: root, v2: syscall.Statfs(root, &st) == nil && st.Type == v2Magic}
}

// Read reads the cgroup at path, which begins at the root of the hierarchies. The
// error wraps fs.ErrNotExist when it is gone. A controller that is missing leaves
// its figures at zero.
func (r Reader) Read(path string) (Figures, error) {
	f := Figures{At: time.Now()}
	if r.v2 {
		dir := filepath.Join(r.root, path)
		if _, err := os.Stat(dir); err != nil {
			return f, fmt.Errorf("read cgroup: %w", err)
		}
		return f, f.readV2(dir)
	}
	memory, cpu := filepath.Join(r.root, "memory", path), filepath.Join(r.root, "cpuacct", path)
	if _, err := os.Stat(memory); err != nil {
		return f, fmt.Errorf("read cgroup: %w", err)
	}
	return f, f.readV1(memory, cpu, filepath.Join(r.root, "pids", path))
}

func (f *Figures) readV2(dir string) error {
	var errs [7]error
	var cpu, mem map[string]uint64
	cpu, errs[0] = pairs(filepath.Join(dir, "cpu.stat"))
	mem, errs[1] = pairs(filepath.Join(dir, "memory.stat"))
	f.Memory, errs[2] = number(filepath.Join(dir, "memory.current"))
	f.Limit, errs[3] = number(filepath.Join(dir, "memory.max"))
	f.Swap, errs[4] = number(filepath.Join(dir, "memory.swap.current"))
	f.PIDs, errs[5] = number(filepath.Join(dir, "pids.current"))
	f.CPU = time.Duration(cpu["usage_usec"]) * time.Microsecond
	f.RSS, f.PageFaults, f.MajorFault = mem["anon"], mem["pgfault"], mem["pgmajfault"]
	f.WorkingSet = f.Memory - min(f.Memory, mem["inactive_file"])
	return errors.Join(errs[:]...)
}

func (f *Figures) readV1(memory, cpu, pids string) error {
	var errs [5]error
	var mem map[string]uint64
	var ns uint64
	mem, errs[0] = pairs(filepath.Join(memory, "memory.stat"))
	f.Memory, errs[1] = number(filepath.Join(memory, "memory.usage_in_bytes"))
	f.Limit, errs[2] = number(filepath.Join(memory, "memory.limit_in_bytes"))
	ns, errs[3] = number(filepath.Join(cpu, "cpuacct.usage"))
	f.PIDs, errs[4] = number(filepath.Join(pids, "pids.current"))
	if f.Limit > math.MaxInt64/2 { // the kernel's way to say none
		f.Limit = 0
	}
	f.CPU = time.Duration(ns)
	f.RSS, f.Swap, f.PageFaults, f.MajorFault = mem["total_rss"], mem["total_swap"], mem["total_pgfault"], mem["total_pgmajfault"]
	f.WorkingSet = f.Memory - min(f.Memory, mem["total_inactive_file"])
	return errors.Join(errs[:]...)
}

// number reads a file with one number, or "max" for none. A missing file is zero.
func number(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if missing(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	s := strings.TrimSpace(string(b))
	if s == "max" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

// pairs reads a file of lines with a name and a number. A missing file is empty.
func pairs(path string) (map[string]uint64, error) {
	b, err := os.ReadFile(path)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, err := strconv.ParseUint(v, 10, 64); err == nil {
				out[k] = n
			}
		}
	}
	return out, nil
}

// missing: the controller is not there, or the cgroup went while it was read.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}

// Processes lists the processes in a cgroup, not those below it. One that is gone has
// none.
func (r Reader) Processes(path string) ([]int, error) {
	controller := "memory"
	if r.v2 {
		controller = ""
	}
	b, err := os.ReadFile(filepath.Join(r.root, controller, path, "cgroup.procs"))
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cgroup: %w", err)
	}
	var out []int
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("read cgroup %s: %w", path, err)
		}
		out = append(out, pid)
	}
	return out, nil
}
