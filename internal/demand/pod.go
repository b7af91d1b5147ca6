package demand

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/islet-edge/islet/internal/podspec"
)

// Requests is what a pod asks of a node: what its containers need at any one time, or
// spec.resources where that says something, and the overhead of its runtime class.
func Requests(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

// Limits is what a pod may use, computed alike. The overhead adds to what is limited.
// It holds for the pod as a whole only if Limited says so.
func Limits(pod *v1.Pod) v1.ResourceList {
	return resource.PodLimits(pod, resource.PodResourcesOptions{})
}

// ContainerRequests is what the containers of a pod ask for at the moment they need
// most, without what is said of the pod as a whole.
func ContainerRequests(spec *v1.PodSpec) v1.ResourceList {
	return resource.AggregateContainerRequests(&v1.Pod{Spec: *spec}, resource.PodResourcesOptions{})
}

// ContainerLimits is the same of their limits.
func ContainerLimits(spec *v1.PodSpec) v1.ResourceList {
	return resource.AggregateContainerLimits(&v1.Pod{Spec: *spec}, resource.PodResourcesOptions{})
}

// Limited says whether the pod as a whole has a limit of a resource: spec.resources
// gives it, or each of its containers has one.
func Limited(pod *v1.Pod, name v1.ResourceName) bool {
	if podLevel(pod, name) {
		return true
	}
	all := true
	resource.AggregateContainerLimits(pod, resource.PodResourcesOptions{ContainerFn: func(limits v1.ResourceList, _ resource.ContainerType) {
		q := limits[name]
		all = all && !q.IsZero()
	}})
	return all && len(pod.Spec.Containers) > 0
}

func podLevel(pod *v1.Pod, name v1.ResourceName) bool {
	if !resource.IsPodLevelResourcesSet(pod) {
		return false
	}
	q := pod.Spec.Resources.Limits[name]
	return !q.IsZero()
}

// Class is a pod's quality of service, by the requests and limits of CPU and memory
// of spec.resources, or else of all its containers.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
func Class(pod *v1.Pod) v1.PodQOSClass {
	any, guaranteed := false, true
	look := func(r *v1.ResourceRequirements) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			any = any || request.Sign() > 0 || limit.Sign() > 0
			// A missing request is the limit: the API server fills it in.
			if limit.Sign() <= 0 || request.Sign() > 0 && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	if pod.Spec.Resources != nil {
		look(pod.Spec.Resources)
	} else {
		for kind, c := range podspec.Containers(&pod.Spec) {
			if kind != podspec.Ephemeral { // which cannot have any
				look(&c.Resources)
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
