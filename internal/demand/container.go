package demand

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/islet-edge/islet/internal/podspec"
)

// Container is what a container may use: its own limits, and the pod's where it has
// none, as the pod's cgroup holds it to them anyway and some programs look at their own.
func Container(pod *v1.Pod, ctr *v1.Container) v1.ResourceList {
	out := v1.ResourceList{}
	if resource.IsPodLevelResourcesSet(pod) {
		for name, q := range pod.Spec.Resources.Limits {
			if resource.IsSupportedPodLevelResource(name) {
				out[name] = q
			}
		}
	}
	for name, q := range ctr.Resources.Limits {
		// A limit of no CPU or memory is none; one of no huge pages is one.
		if !q.IsZero() || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			out[name] = q
		}
	}
	return out
}

// Memory is how many bytes a container asks for in the eyes of the OOM killer: its
// request and its share of what spec.resources asks for beyond the containers'
// requests. A sidecar has at least the least of the main containers', so that it does
// not go before them.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2837-pod-level-resource-spec#oom-score-adjustment
func Memory(pod *v1.Pod, ctr *v1.Container) int64 {
	asks := ctr.Resources.Requests.Memory().Value()
	if kind, _ := podspec.Find(&pod.Spec, ctr.Name); kind == podspec.Sidecar {
		var least *int64
		for i := range pod.Spec.Containers {
			if m := pod.Spec.Containers[i].Resources.Requests.Memory().Value(); least == nil || m < *least {
				least = &m
			}
		}
		if least != nil {
			asks = max(asks, *least)
		}
	}
	return asks + share(pod)
}

// share is what each container gets of the memory that only the pod as a whole asks
// for.
func share(pod *v1.Pod) int64 {
	if !resource.IsPodLevelRequestsSet(pod) {
		return 0
	}
	whole := resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{})
	rest := pod.Spec.Resources.Requests.Memory().Value() - whole.Memory().Value()
	return max(rest, 0) / int64(max(len(pod.Spec.Containers)+len(pod.Spec.InitContainers), 1))
}
