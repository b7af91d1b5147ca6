package ocispec

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Resources converts the limits of a container. Zero means no limit, except for huge pages: a
// container may use no huge pages of a size whose limit is zero. Without the hugetlb controller,
// zero limits of huge pages are omitted, because an OCI runtime would reject them.
func Resources(r *api.LinuxContainerResources, host Host) *specs.LinuxResources {
	if r == nil {
		return nil
	}
	out := &specs.LinuxResources{Unified: r.GetUnified()}
	cpu := &specs.LinuxCPU{Cpus: r.GetCpusetCpus(), Mems: r.GetCpusetMems()}
	if v := r.GetCpuShares(); v != 0 {
		shares := uint64(v)
		cpu.Shares = &shares
	}
	if v := r.GetCpuQuota(); v != 0 {
		cpu.Quota = &v
	}
	if v := r.GetCpuPeriod(); v != 0 {
		period := uint64(v)
		cpu.Period = &period
	}
	out.CPU = cpu
	if limit := r.GetMemoryLimitInBytes(); limit != 0 {
		out.Memory = &specs.LinuxMemory{Limit: &limit}
		if swap := r.GetMemorySwapLimitInBytes(); swap != 0 {
			out.Memory.Swap = &swap
		}
	}
	for _, h := range r.GetHugepageLimits() {
		if h.GetLimit() != 0 || host.HugePages {
			out.HugepageLimits = append(out.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: h.GetPageSize(), Limit: h.GetLimit()})
		}
	}
	return out
}
