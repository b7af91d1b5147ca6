package demand

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/islet-edge/islet/internal/podspec"
)

// EffectiveLimits returns the limits for a container's cgroup. They are the container's own limits.
// For a resource that the container does not limit, they contain the pod's limit. The pod's cgroup
// already enforces the pod's limits, but some programs read the limits of their own cgroup.
func EffectiveLimits(pod *v1.Pod, ctr *v1.Container) v1.ResourceList {
	out := v1.ResourceList{}
	if resource.IsPodLevelResourcesSet(pod) {
		for name, q := range pod.Spec.Resources.Limits {
			if resource.IsSupportedPodLevelResource(name) {
				out[name] = q
			}
		}
	}
	for name, q := range ctr.Resources.Limits {
		// A limit of zero means no limit for CPU and memory, but no pages at all for huge pages.
		if !q.IsZero() || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			out[name] = q
		}
	}
	return out
}

// ScoreMemory returns the memory request, in bytes, from which a container's OOM score is computed. It is the sum of
// the container's request and its share of the pod's spare request (see spareShare). The request of a sidecar counts as
// at least the smallest request of the main containers. So the kernel does not kill the sidecar before the main
// containers.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2837-pod-level-resource-spec#oom-score-adjustment
func ScoreMemory(pod *v1.Pod, ctr *v1.Container) int64 {
	request := ctr.Resources.Requests.Memory().Value()
	if kind, _ := podspec.Find(&pod.Spec, ctr.Name); kind == podspec.Sidecar {
		var least *int64
		for i := range pod.Spec.Containers {
			if m := pod.Spec.Containers[i].Resources.Requests.Memory().Value(); least == nil || m < *least {
				least = &m
			}
		}
		if least != nil {
			request = max(request, *least)
		}
	}
	return request + spareShare(pod)
}

// spareShare returns one container's equal share of the pod's spare memory request. The spare request is the memory
// request in spec.resources minus the sum of the containers' requests, or zero if that is negative.
func spareShare(pod *v1.Pod) int64 {
	if !resource.IsPodLevelRequestsSet(pod) {
		return 0
	}
	sum := resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{})
	rest := pod.Spec.Resources.Requests.Memory().Value() - sum.Memory().Value()
	return max(rest, 0) / int64(max(len(pod.Spec.Containers)+len(pod.Spec.InitContainers), 1))
}
