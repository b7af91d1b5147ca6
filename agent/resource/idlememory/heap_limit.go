package idlememory

import (
	"errors"
	"log/slog"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The soft limit for the agent's memory is the total memory divided by heapFraction, but at least minHeap. The
// limit does not apply to the pages of the agent's executable. The garbage collector runs more often when the use
// is close to the limit.
const (
	heapFraction = 4
	minHeap      = 24 << 20
)

// smallMachine is the size of memory below which the pages of the executable should not stay mapped.
const smallMachine = 256 << 20

// Begin must be called first when the agent starts. It sets the memory limit, and makes garbage collections rarer
// within this limit while all pods start.
func Begin(log *slog.Logger) {
	DelayCollections()
	if err := LimitHeap(); err != nil {
		log.Debug("cannot limit the agent's memory", "error", err)
	}
}

// LimitHeap sets the Go memory limit according to the memory of the machine or of this process's cgroup. The
// administrator can override the limit with GOMEMLIMIT.
func LimitHeap() error {
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return err
	}
	total, cgroup := uint64(machine.Totalram)*uint64(machine.Unit), cgroupLimit("/")
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapLimit(total, cgroup))
	}
	if total < smallMachine || cgroup > 0 && cgroup < smallMachine {
		return adviseRandom()
	}
	return nil
}

// adviseRandom unmaps the pages of the executable that are mapped now. It also advises the kernel to read only the
// page that is accessed, and not the 32 pages around it. At its start the program accesses 28 MB of its file, and
// most of them only once.
func adviseRandom() error { return errors.Join(advisePages(unix.MADV_RANDOM), forgetPages()) }

// heapLimit returns the memory limit of the agent. Its parameters are the memory of the machine, and the limit of the
// agent's cgroup, or 0 if there is no such limit.
func heapLimit(machine, cgroup uint64) int64 {
	if cgroup > 0 {
		machine = min(machine, cgroup)
	}
	return int64(max(machine/heapFraction, minHeap))
}

// cgroupLimit returns the lowest memory limit of this process's cgroup and its ancestors, or 0 if there is none. The
// parameter root is the root directory of the host's files.
func cgroupLimit(root string) (lowest uint64) {
	own, err := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(own)) { // 4:memory:/system.slice/islet.service, 0::/...
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		dir, file := "", ""
		switch part[1] {
		case "":
			dir, file = "sys/fs/cgroup", "memory.max"
		case "memory":
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for at := path.Clean("/" + part[2]); ; at = path.Dir(at) {
			text, err := os.ReadFile(path.Join(root, dir, at, file))
			n, perr := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && perr == nil && (lowest == 0 || n < lowest) {
				lowest = n // "max" is not a number, and its v1 equivalent is larger than any memory
			}
			if at == "/" {
				break
			}
		}
	}
	return lowest
}
