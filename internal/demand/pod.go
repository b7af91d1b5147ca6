package demand

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/islet-edge/islet/internal/podspec"
)

// Requests returns a pod's effective requests. If spec.resources requests a resource, Requests uses this request. For
// any other resource, it uses the maximum that the pod's containers request at the same time. In both cases Requests
// adds the overhead of the pod's runtime class.
func Requests(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

// Limits returns a pod's effective limits, computed like Requests. The overhead is added only to
// resources that have a limit. A limit applies to the pod as a whole only if IsLimited returns true
// for the resource.
func Limits(pod *v1.Pod) v1.ResourceList {
	return resource.PodLimits(pod, resource.PodResourcesOptions{})
}

// ContainerRequests returns the maximum that the containers of a pod request at the same time,
// without spec.resources and overhead.
func ContainerRequests(spec *v1.PodSpec) v1.ResourceList {
	return resource.AggregateContainerRequests(&v1.Pod{Spec: *spec}, resource.PodResourcesOptions{})
}

// ContainerLimits is like ContainerRequests for limits.
func ContainerLimits(spec *v1.PodSpec) v1.ResourceList {
	return resource.AggregateContainerLimits(&v1.Pod{Spec: *spec}, resource.PodResourcesOptions{})
}

// IsLimited reports whether a resource is limited for the pod as a whole. This is the case if
// spec.resources has a limit for the resource, or if every container has such a limit.
func IsLimited(pod *v1.Pod, name v1.ResourceName) bool {
	if podLevel(pod, name) {
		return true
	}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if q := c.Resources.Limits[name]; kind != podspec.Ephemeral && q.IsZero() {
			return false
		}
	}
	return len(pod.Spec.Containers) > 0
}

func podLevel(pod *v1.Pod, name v1.ResourceName) bool {
	if !resource.IsPodLevelResourcesSet(pod) {
		return false
	}
	q := pod.Spec.Resources.Limits[name]
	return !q.IsZero()
}

// Class returns a pod's quality of service class. It is computed from the CPU and memory of
// spec.resources, or of all containers if spec.resources has no request or limit.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
func Class(pod *v1.Pod) v1.PodQOSClass {
	any, guaranteed := false, true
	inspect := func(r *v1.ResourceRequirements) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, requested := r.Requests[name]
			limit := r.Limits[name]
			any = any || request.Sign() > 0 || limit.Sign() > 0
			// The API server sets a missing request to the limit, but keeps a request of zero.
			if limit.Sign() <= 0 || requested && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	if resource.IsPodLevelResourcesSet(pod) {
		inspect(pod.Spec.Resources)
	} else {
		for kind, c := range podspec.Containers(&pod.Spec) {
			if kind != podspec.Ephemeral { // an ephemeral container has no resources
				inspect(&c.Resources)
			}
		}
	}
	switch {
	case !any:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}
