package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
)

// kernelDir is where the kernel says how many processes and threads there may be.
const kernelDir = "/proc/sys/kernel"

// What is kept for the host: a tenth of its process IDs, in these bounds.
const (
	leastHostPIDs = 1024
	mostHostPIDs  = 16384
)

// A pidLimits is how many processes and threads there may be in a cgroup; 0 means
// any number.
type pidLimits struct {
	all int64 // kubepods, so that no fork bomb keeps the host from starting a process
	pod int64 // one pod, so that it does not keep the others from that
}

// findPIDLimits derives the limits from those of the host. A pod's own is wanted
// of the configuration if that is positive, and else half of what all pods have.
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

// readLimit is 0 where the kernel does not say.
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

// countsPIDs says whether a cgroup can limit them: a kernel may have been built
// without, or on v1 have mounted no hierarchy for it.
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

// pidsLimit returns the limit as the cgroups library takes it. Zero sets no limit:
// the library takes a pointer to zero for "one process".
func pidsLimit(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}
