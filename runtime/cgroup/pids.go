package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
)

// kernelDir has the kernel's limits of processes and threads.
const kernelDir = "/proc/sys/kernel"

// The PIDs reserved for the host are a tenth of all, within these limits.
const (
	leastHostPIDs = 1024
	mostHostPIDs  = 16384
)

// A pidLimits is the maximum number of processes and threads in a cgroup; 0: no limit.
type pidLimits struct {
	all int64 // of kubepods, so that a fork bomb cannot prevent the host from starting processes
	pod int64 // of one pod, so that a fork bomb does not affect other pods
}

// findPIDLimits derives the limits from those of the host. A pod's limit is wanted, from the
// configuration, if that is positive; else it is half of the limit of all pods.
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

// readLimit reads a limit of the kernel; 0 if it cannot be read.
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

// countsPIDs reports whether PIDs can be limited: the kernel may have been built without that
// controller, or on v1 its hierarchy may not be mounted.
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

// pidsLimit converts a limit for the cgroups library. Zero sets no limit; the library would read a
// pointer to zero as "one process".
func pidsLimit(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}
