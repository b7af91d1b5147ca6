package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
)

// kernelDir is the directory of the kernel's limits of processes and threads.
const kernelDir = "/proc/sys/kernel"

// Minimum and maximum number of PIDs that are reserved for the host. Within these bounds, a tenth
// of all PIDs is reserved.
const (
	leastHostPIDs = 1024
	mostHostPIDs  = 16384
)

// pidLimits contains maximum numbers of processes and threads. Zero means no limit.
type pidLimits struct {
	kubepods int64 // for kubepods, so that a fork bomb does not affect the host
	pod      int64 // for each pod, so that a fork bomb does not affect other pods
}

// findPIDLimits derives the limits from the kernel's limits in a directory. The limit of a pod is the configured one, or half of the limit
// of kubepods if the configured one is not positive. https://kubernetes.io/docs/concepts/policy/pid-limiting/
func findPIDLimits(dir string, wanted int64) pidLimits {
	host := min(readLimit(dir, "pid_max"), readLimit(dir, "threads-max"))
	var l pidLimits
	if host > 0 {
		l.kubepods = host - min(max(host/10, leastHostPIDs), mostHostPIDs, host/2)
		l.pod = l.kubepods / 2
	}
	if wanted > 0 {
		l.pod = wanted
	}
	return l
}

// readLimit reads a limit of the kernel. It returns 0 if that fails.
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

// countsPIDs reports whether the pids controller is available. With cgroup v1, its hierarchy must
// be mounted.
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

// pidsLimit converts a limit for the cgroups library. Zero means no limit and becomes nil, because
// a pointer to zero would be a limit for the library.
func pidsLimit(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}
