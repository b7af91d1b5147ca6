package settle

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

// The limit for the agent's own memory, without its program's pages, is this fraction of the total
// but not less than it needs. Garbage is collected more often the closer the use is to the limit.
// It is a soft limit.
const (
	heapFraction = 4
	leastHeap    = 24 << 20
)

// small is the memory below which the program's pages compete with everything else.
const small = 256 << 20

// Begin is called first in an agent's life. It lets garbage grow while all pods start, within the
// memory limit.
func Begin(log *slog.Logger) {
	Busy()
	if err := Bound(); err != nil {
		log.Debug("cannot limit the agent's memory", "error", err)
	}
}

// Bound sets the Go memory limit by the memory of the machine or of this process's cgroup. A
// GOMEMLIMIT of the administrator takes precedence.
func Bound() error {
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return err
	}
	total, cgroup := uint64(machine.Totalram)*uint64(machine.Unit), cgroupLimit("/")
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(heapLimit(total, cgroup))
	}
	if total < small || cgroup > 0 && cgroup < small {
		return adviseRandom()
	}
	return nil
}

// adviseRandom has the kernel read only pages of the program that are accessed, without the 32
// around each, and returns the pages mapped so far: a starting program touches 28 MB of its file
// and needs most of it only once.
func adviseRandom() error { return errors.Join(advise(unix.MADV_RANDOM), forgetPages()) }

// heapLimit returns the limit for a machine's and a cgroup's memory; cgroup 0: no limit.
func heapLimit(machine, cgroup uint64) int64 {
	if cgroup > 0 {
		machine = min(machine, cgroup)
	}
	return int64(max(machine/heapFraction, leastHeap))
}

// cgroupLimit returns the lowest memory limit of this process's cgroup and its ancestors; 0: none.
// root is the root directory of the host's files.
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
				lowest = n // "max" is not a number; the v1 equivalent is larger than any memory
			}
			if at == "/" {
				break
			}
		}
	}
	return lowest
}
