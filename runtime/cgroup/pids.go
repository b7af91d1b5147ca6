package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
)

// kernelDir contains the kernel's limits of processes and threads.
const kernelDir = "/proc/sys/kernel"

// A tenth of all PIDs is reserved for the host, but not less and not more than these numbers.
const (
	leastHostPIDs = 1024
	mostHostPIDs  = 16384
)

// A pidLimits is the maximum number of processes and threads in a cgroup. Zero means no limit.
type pidLimits struct {
	all int64 // of kubepods, so that the host can start processes during a fork bomb
	pod int64 // of one pod, so that a fork bomb does not affect other pods
}

// findPIDLimits derives the limits from the host's limits. The limit of a pod is wanted, from the
// configuration, if that is positive. Otherwise it is half of the limit of all pods.
// https://kubernetes.io/docs/concepts/policy/pid-limiting/
func findPIDLimits(dir string, wanted int64) pidLimits {
	host := min(readLimit(dir, "pid_max"), readLimit(dir, "threads-max"))
	var l pidLimits
	if host > 0 {
		l.all = host - min(max(host/10, leastHostPIDs), mostHostPIDs, host/2)
		l.pod = l.all / 2
	}
	if wanted > 0 {
		l.pod = wanted
	}
	return l
}

// readLimit reads a limit of the kernel. It returns 0 if the limit cannot be read.
func readLimit(dir, name string) int64 {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// countsPIDs reports whether PIDs can be limited. They cannot if the kernel was built without that
// controller, or on v1 if its hierarchy is not mounted.
func countsPIDs(m cgroups.Manager) bool {
	if !cgroups.IsCgroup2UnifiedMode() {
		return m.Path("pids") != ""
	}
	b, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	for _, c := range strings.Fields(string(b)) {
		if err == nil && c == "pids" {
			return true
		}
	}
	return false
}

// pidsLimit converts a limit for the cgroups library. It returns nil for zero, because the library
// treats a pointer to zero as a limit of one process.
func pidsLimit(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}
