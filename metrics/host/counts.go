package host

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Processes contains the number of processes and threads on the machine, and the kernel's limit.
type Processes struct{ Now, Max uint64 }

// Processes returns the number of processes and threads, and the kernel's limit.
func (h *Host) Processes() (p Processes, err error) {
	load := strings.Fields(h.readLine("proc/loadavg"))
	if len(load) < 4 {
		return p, fmt.Errorf("count processes: no %s", h.path("proc/loadavg"))
	}
	_, all, _ := strings.Cut(load[3], "/")
	if p.Now, err = strconv.ParseUint(all, 10, 64); err != nil {
		return p, fmt.Errorf("count processes: %w", err)
	}
	p.Max, err = strconv.ParseUint(h.readLine("proc/sys/kernel/pid_max"), 10, 64)
	if threads, e := strconv.ParseUint(h.readLine("proc/sys/kernel/threads-max"), 10, 64); e == nil {
		p.Max = min(p.Max, threads)
	}
	return p, err
}

// Topology returns the number of cores and of CPU packages. The numbers are 0 if they are unknown.
func (h *Host) Topology() (cores, sockets int) {
	files, _ := filepath.Glob(h.path("sys/devices/system/cpu/cpu[0-9]*/topology"))
	type core struct{ socket, id string }
	seen, packages := map[core]bool{}, map[string]bool{}
	for _, dir := range files {
		rel, err := filepath.Rel(h.root, dir)
		if err != nil {
			continue
		}
		c := core{h.readLine(rel + "/physical_package_id"), h.readLine(rel + "/core_id")}
		if c.id != "" {
			seen[c], packages[c.socket] = true, true
		}
	}
	return len(seen), len(packages)
}

// OnlineCPUs returns the IDs of the online CPUs.
func (h *Host) OnlineCPUs() (cpus []int, err error) {
	list := h.readLine("sys/devices/system/cpu/online")
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseUint(low, 10, 16)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseUint(high, 10, 16)
		}
		if err != nil {
			return nil, fmt.Errorf("read the online CPUs: %q is not a list", list)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}
