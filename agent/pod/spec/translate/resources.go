package translate

import (
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// linuxResources converts requests and limits to cgroup values, in the same way as a kubelet.
// https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
func linuxResources(pod *v1.Pod, ctr *v1.Container, n Node) *api.LinuxContainerResources {
	req, lim := ctr.Resources.Requests, demand.EffectiveLimits(pod, ctr)
	out := &api.LinuxContainerResources{
		CpuShares:          demand.CPUShares(cpuMillis(req, lim)),
		MemoryLimitInBytes: lim.Memory().Value(),
		OomScoreAdj:        oomScoreAdj(pod, ctr, n.MemoryBytes),
	}
	if m := lim.Cpu().MilliValue(); m > 0 && n.CPUPeriod >= 0 {
		out.CpuQuota, out.CpuPeriod = demand.CPUQuota(m, n.CPUPeriod)
		if n.hasExclusiveCPUs(pod, ctr) {
			out.CpuQuota = -1
		}
	}
	unified := map[string]string{}
	if n.OOMGroup {
		unified["memory.oom.group"] = "1"
	}
	switch n.SwapCgroup {
	case 1:
		out.MemorySwapLimitInBytes = out.MemoryLimitInBytes // limit for memory and swap together
	case 2:
		unified["memory.swap.max"] = strconv.FormatInt(swapLimit(pod, ctr, n), 10)
	}
	n.MemoryQoS.setProtection(unified, pod, ctr, n.Allocatable.Memory().Value())
	if len(unified) > 0 {
		out.Unified = unified
	}
	for _, h := range demand.HugePagesOf(n.hugePages(lim)) {
		out.HugepageLimits = append(out.HugepageLimits, &api.HugepageLimit{PageSize: h.Size, Limit: h.Bytes})
	}
	return out
}

// hugePages adds a limit of 0 for each size of huge pages that the node has but the limits do not contain. A kubelet
// does the same.
func (n Node) hugePages(limits v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name := range n.Allocatable {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			out[name] = resource.Quantity{}
		}
	}
	maps.Copy(out, limits)
	return out
}

// hasExclusiveCPUs reports whether a container has exclusive CPUs.
func (n Node) hasExclusiveCPUs(pod *v1.Pod, ctr *v1.Container) bool {
	return n.Exclusive != nil && n.Exclusive(pod.UID, ctr.Name)
}

// cpuMillis returns the CPU request of a container in thousandths of a CPU. If the container has no
// request, it returns the CPU limit.
func cpuMillis(req, lim v1.ResourceList) int64 {
	if _, ok := req[v1.ResourceCPU]; ok {
		return req.Cpu().MilliValue()
	}
	return lim.Cpu().MilliValue()
}
