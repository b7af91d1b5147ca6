package cgroup

import (
	"bufio"
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// setRootV2 sets the figures for which the root of cgroup v2 has no files. The memory usage of the root is its anonymous memory plus the
// page cache, as in cAdvisor. The swap usage of the root is the swap usage of the whole machine.
func (d *Details) setRootV2(proc string) {
	if d.Memory > 0 {
		return
	}
	d.Memory = d.RSS + d.Cache
	d.WorkingSet = WorkingSet(d.Memory, d.InactiveFile)
	f, err := os.Open(filepath.Join(cmp.Or(proc, "/proc"), "meminfo"))
	if err != nil {
		return // the swap usage stays 0
	}
	defer f.Close()
	var total, free uint64
	for in := bufio.NewScanner(f); in.Scan(); {
		name, rest, _ := strings.Cut(in.Text(), ":")
		n, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 54)
		switch name {
		case "SwapTotal":
			total = n << 10
		case "SwapFree":
			free = n << 10
		}
	}
	d.Swap = total - min(total, free)
}
