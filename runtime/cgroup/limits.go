package cgroup

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// podLimits returns the limits of a pod's cgroup. The parameter pids is the maximum number of processes. If it is zero or negative, there
// is no maximum. A period of zero means 100 ms. A negative period means that there is no CPU quota.
func podLimits(pod *v1.Pod, pids, period int64) *cgroups.Resources {
	r := &cgroups.Resources{SkipDevices: true, CpuShares: demand.MinShares}
	if pids > 0 {
		r.PidsLimit = pidsLimit(pids)
	}
	if demand.Class(pod) != v1.PodQOSBestEffort {
		r.CpuShares = cpuShares(cpuMillis(demand.Requests(pod)))
	}
	if demand.IsLimited(pod, v1.ResourceCPU) && period >= 0 {
		r.CpuQuota, period = demand.CPUQuota(cpuMillis(demand.Limits(pod)), period)
		r.CpuPeriod = uint64(period)
	}
	if demand.IsLimited(pod, v1.ResourceMemory) {
		limits := demand.Limits(pod)
		r.Memory = limits.Memory().Value()
	}
	return r
}

// hugePages returns the huge page limits of a pod. Like a kubelet, it uses the pod's requests as limits. The limit is zero for sizes that
// the pod does not request, because other pods or the host may have reserved those pages. Only sizes that the hugetlb controller supports
// are returned. The supported sizes are read from the directory of the parent cgroup, which is "" without that controller.
func hugePages(pod *v1.Pod, dir string) (out []*cgroups.HugepageLimit) {
	requests := map[string]uint64{}
	for _, h := range demand.HugePagesOf(demand.Requests(pod)) {
		requests[h.Size] = h.Bytes
	}
	for _, size := range pageSizes(dir) {
		out = append(out, &cgroups.HugepageLimit{Pagesize: size, Limit: requests[size]})
	}
	return out
}

// pageSizes returns the huge page sizes that the hugetlb controller supports, such as 2MB. It reads them from the directory of a cgroup. If
// the directory is "", pageSizes returns no size.
func pageSizes(dir string) (out []string) {
	if dir == "" {
		return nil
	}
	entries, _ := os.ReadDir(dir) // creating the child cgroup will return the error
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

// countedHugePages returns the limits of those page sizes that the hugetlb controller supports. The supported sizes are read from the
// directory of a cgroup, which is "" without that controller.
func countedHugePages(pages []demand.HugePages, dir string) (out []*cgroups.HugepageLimit) {
	for _, h := range pages {
		file := filepath.Join(dir, "hugetlb."+h.Size)
		if dir != "" && (cgroups.PathExists(file+".max") || cgroups.PathExists(file+".limit_in_bytes")) { // v2, v1
			out = append(out, &cgroups.HugepageLimit{Pagesize: h.Size, Limit: h.Bytes})
		}
	}
	return out
}

func cpuMillis(l v1.ResourceList) int64 { return l.Cpu().MilliValue() }

// IsUnified reports whether the host uses cgroup v2.
func IsUnified() bool { return cgroups.IsCgroup2UnifiedMode() }
