package cgroup

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// Limits of the kernel, and the kubelet's CPU period.
const (
	minShares = 2
	maxShares = 262144
	minQuota  = 1000 // microseconds

	usualPeriod = 100000 // microseconds
)

// shares converts millicores to CPU shares.
func shares(milli int64) uint64 {
	if milli <= 0 {
		return minShares
	}
	return uint64(min(max(milli*1024/1000, minShares), maxShares))
}

// podLimits returns the limits of a pod's own cgroup.
func podLimits(pod *v1.Pod, pids, period int64) *cgroups.Resources {
	r := &cgroups.Resources{SkipDevices: true, CpuShares: minShares}
	if pids > 0 {
		r.PidsLimit = pidsLimit(pids)
	}
	if demand.Class(pod) != v1.PodQOSBestEffort {
		r.CpuShares = shares(milli(demand.Requests(pod)))
	}
	if demand.IsLimited(pod, v1.ResourceCPU) && period >= 0 {
		period = cmp.Or(period, usualPeriod)
		r.CpuPeriod = uint64(period)
		r.CpuQuota = max(milli(demand.Limits(pod))*period/1000, minQuota)
	}
	if demand.IsLimited(pod, v1.ResourceMemory) {
		limits := demand.Limits(pod)
		r.Memory = limits.Memory().Value()
	}
	return r
}

// hugePages limits the huge pages of a pod to its requests, as a kubelet does. The limit is zero
// for sizes that it does not request, because other pods or the host may have reserved those pages.
// It sets limits only for sizes that the kernel counts. dir is the cgroup above the pod's, or "" if
// the kernel does not count huge pages.
func hugePages(pod *v1.Pod, dir string) (out []*cgroups.HugepageLimit) {
	asked := map[string]uint64{}
	for _, h := range demand.HugePagesOf(demand.Requests(pod)) {
		asked[h.Size] = h.Bytes
	}
	for _, size := range pageSizes(dir) {
		out = append(out, &cgroups.HugepageLimit{Pagesize: size, Limit: asked[size]})
	}
	return out
}

// pageSizes returns the huge page sizes that the kernel counts in a cgroup, such as 2MB. It returns
// none if dir is empty.
func pageSizes(dir string) (out []string) {
	if dir == "" {
		return nil
	}
	entries, _ := os.ReadDir(dir) // an error will be reported when the cgroup below is created
	for _, e := range entries {
		size, ours := strings.CutPrefix(e.Name(), "hugetlb.")
		for _, limit := range []string{".max", ".limit_in_bytes"} { // v2, v1
			if size, ok := strings.CutSuffix(size, limit); ours && ok && !strings.Contains(size, ".") {
				out = append(out, size)
			}
		}
	}
	return out
}

// countedHugePages returns the limits for the sizes that the kernel counts in a cgroup. dir is empty if the
// kernel counts none.
func countedHugePages(pages []demand.HugePages, dir string) (out []*cgroups.HugepageLimit) {
	for _, h := range pages {
		file := filepath.Join(dir, "hugetlb."+h.Size)
		if dir != "" && (cgroups.PathExists(file+".max") || cgroups.PathExists(file+".limit_in_bytes")) { // v2, v1
			out = append(out, &cgroups.HugepageLimit{Pagesize: h.Size, Limit: h.Bytes})
		}
	}
	return out
}

func milli(l v1.ResourceList) int64 { return l.Cpu().MilliValue() }

// Unified reports whether the host uses cgroup v2.
func Unified() bool { return cgroups.IsCgroup2UnifiedMode() }
