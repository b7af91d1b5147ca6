package demand

import (
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// MemoryHigh returns the memory use, in bytes, from which the kernel throttles a cgroup (memory.high). This value is the
// request plus a part of the difference between the limit and the request. The parameter factor is this part. The value
// is rounded down to whole pages. The value is 0 if the cgroup is not throttled.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2570-memory-qos
func MemoryHigh(request, limit int64, factor float64) int64 {
	if factor <= 0 || limit <= 0 {
		return 0
	}
	page := int64(os.Getpagesize())
	high := int64(float64(request)+float64(limit-request)*factor) / page * page
	if high <= request {
		return 0
	}
	return high
}

// PodMemoryHigh returns memory.high of a pod's own cgroup, computed like MemoryHigh. It is 0 for a pod without a request
// or limit in spec.resources, and for a pod whose memory is not limited. The containers of such a pod are throttled one
// by one.
func PodMemoryHigh(pod *v1.Pod, factor float64) int64 {
	if !resource.IsPodLevelResourcesSet(pod) || !IsLimited(pod, v1.ResourceMemory) {
		return 0
	}
	requests, limits := Requests(pod), Limits(pod)
	return MemoryHigh(requests.Memory().Value(), limits.Memory().Value(), factor)
}

// AsWhole reports whether a pod requests or limits resources as a whole, in spec.resources.
func AsWhole(pod *v1.Pod) bool { return resource.IsPodLevelResourcesSet(pod) }

// ThrottledAsPod reports whether the memory of a container is throttled by the cgroup of its pod only. This is the case
// if spec.resources has a memory limit, and the container has none.
func ThrottledAsPod(pod *v1.Pod, ctr *v1.Container) bool {
	return ctr.Resources.Limits.Memory().IsZero() && podLevel(pod, v1.ResourceMemory)
}
