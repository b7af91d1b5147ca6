package translate

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/podspec"
)

// Sizes returns the resources of a pod's containers, as values for the runtime. Ephemeral containers have none.
func Sizes(pod *v1.Pod, n Node) map[string]plan.Size {
	out := map[string]plan.Size{}
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		if kind != podspec.Ephemeral {
			r := linuxResources(pod, ctr, n)
			size := plan.Size{Resources: plan.FromCRI(r.CpuShares, r.CpuQuota, r.CpuPeriod, r.MemoryLimitInBytes),
				RestartResources: restartResources(pod, ctr)}
			size.MemoryRequest = memoryRequest(pod, ctr)
			out[ctr.Name] = size
		}
	}
	return out
}

// memoryRequest returns a container's plan.Resources.MemoryRequest. It depends also on whether only the pod as a whole throttles the
// container, because the memory limit that the runtime reports is the same in both cases.
func memoryRequest(pod *v1.Pod, ctr *v1.Container) int64 {
	return plan.MemoryRequest(ctr.Resources.Requests.Memory().Value(), demand.ThrottledAsPod(pod, ctr))
}

// PodLevel returns the resources of a pod as a whole.
func PodLevel(pod *v1.Pod, n Node) plan.Resources {
	requests, limits := demand.Requests(pod), demand.Limits(pod)
	out := plan.Resources{Shares: demand.MinShares, MemoryRequest: plan.MemoryRequest(requests.Memory().Value(), demand.AsWhole(pod))}
	if demand.Class(pod) != v1.PodQOSBestEffort {
		out.Shares = demand.CPUShares(requests.Cpu().MilliValue())
	}
	if demand.IsLimited(pod, v1.ResourceCPU) && n.CPUPeriod >= 0 && !n.anyExclusive(pod) {
		out.Milli = limits.Cpu().MilliValue()
	}
	if demand.IsLimited(pod, v1.ResourceMemory) {
		out.Memory = limits.Memory().Value()
	}
	return out
}

// anyExclusive reports whether a container of a pod has exclusive CPUs. In that case the pod as a whole has no CPU
// quota.
func (n Node) anyExclusive(pod *v1.Pod) bool {
	for _, ctr := range podspec.Containers(&pod.Spec) {
		if n.hasExclusiveCPUs(pod, ctr) {
			return true
		}
	}
	return false
}

// ContainerUpdate returns a container's resources for UpdateContainerResources. They also remove the memory.high that an agent with
// another configuration has set.
func ContainerUpdate(pod *v1.Pod, ctr *v1.Container, n Node) *api.LinuxContainerResources {
	out := linuxResources(pod, ctr, n)
	if n.MemoryQoS != nil && out.Unified[memoryHigh] == "" {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		out.Unified[memoryHigh] = "max"
	}
	out.HugepageLimits = nil // huge pages cannot be resized
	return out
}

// SandboxUpdate returns the arguments of UpdatePodSandboxResources (KEP-5328): a pod's resources without its
// overhead, and the resources of the overhead.
func SandboxUpdate(pod *v1.Pod, n Node) (whole, overhead *api.LinuxContainerResources) {
	own := *pod
	own.Spec.Overhead = nil
	of := func(r plan.Resources) *api.LinuxContainerResources {
		out := &api.LinuxContainerResources{CpuShares: r.Shares, MemoryLimitInBytes: r.Memory}
		if r.Milli > 0 {
			out.CpuQuota, out.CpuPeriod = demand.CPUQuota(r.Milli, max(n.CPUPeriod, 0))
		}
		return out
	}
	o := pod.Spec.Overhead
	if len(o) == 0 {
		return of(PodLevel(&own, n)), &api.LinuxContainerResources{}
	}
	return of(PodLevel(&own, n)), of(plan.Resources{Shares: demand.CPUShares(o.Cpu().MilliValue()), Milli: o.Cpu().MilliValue(),
		Memory: o.Memory().Value()})
}

// restartResources returns, as text, the resources of a container whose resizePolicy requires a restart. It returns "" for an
// init container that runs to completion, which never restarts for a resize.
func restartResources(pod *v1.Pod, ctr *v1.Container) string {
	if len(ctr.ResizePolicy) == 0 {
		return ""
	}
	if kind, _ := podspec.Find(&pod.Spec, ctr.Name); kind == podspec.Init {
		return ""
	}
	var out []string
	limits := demand.EffectiveLimits(pod, ctr)
	for _, policy := range ctr.ResizePolicy {
		if policy.RestartPolicy != v1.RestartContainer {
			continue
		}
		request, limit := ctr.Resources.Requests[policy.ResourceName], limits[policy.ResourceName]
		out = append(out, fmt.Sprintf("%s=%s/%s", policy.ResourceName, formatQuantity(request), formatQuantity(limit)))
	}
	return strings.Join(out, ",")
}

// formatQuantity formats a quantity. Equal quantities give equal results.
func formatQuantity(q resource.Quantity) string {
	if q.IsZero() {
		return "0"
	}
	if milli := q.MilliValue(); milli%1000 != 0 {
		return fmt.Sprintf("%dm", milli)
	}
	return fmt.Sprint(q.Value())
}
