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

// The agent's own memory, without the pages of its program, may be this part of what there
// is, but not less than it needs: garbage is collected the more often the closer it comes.
// It is a bound that is kept as long as no more than that is in use at a time.
const (
	heapPart  = 4
	leastHeap = 24 << 20
)

// small is a machine on which the pages of the program compete with all else for memory.
const small = 256 << 20

// Begin is called first in an agent's life: garbage may grow while all pods start, within
// what the machine has.
func Begin(log *slog.Logger) {
	Busy()
	if err := Bound(); err != nil {
		log.Debug("the agent's memory is not bounded", "error", err)
	}
}

// Bound keeps this process within the memory of the machine, or of the cgroup that it is in.
// The administrator's GOMEMLIMIT is stronger.
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
		return spare()
	}
	return nil
}

// spare has the kernel read only those pages of the program that are needed, and not the 32
// around each, and gives back what was mapped before: a program that has just started has
// touched 28 MB of its file, most of which it never needs again.
func spare() error { return errors.Join(advise(unix.MADV_RANDOM), forgetPages()) }

// heapLimit is the bound where there is so much memory in all, and so much in the cgroup;
// 0: no limit.
func heapLimit(machine, cgroup uint64) int64 {
	if cgroup > 0 {
		machine = min(machine, cgroup)
	}
	return int64(max(machine/heapPart, leastHeap))
}

// cgroupLimit is the lowest limit of memory of this process's cgroup and of those above
// it; 0: none. The root is that of the host's files.
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
			if n, perr := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && perr == nil && (lowest == 0 || n < lowest) {
				lowest = n // "max" is no number, and what v1 has for it is more than any machine has
			}
			if at == "/" {
				break
			}
		}
	}
	return lowest
}
