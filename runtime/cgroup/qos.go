package cgroup

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// class derives a pod's quality of service from the CPU and memory of its
// containers, init containers included.
func class(pod *v1.Pod) v1.PodQOSClass {
	guaranteed, any := true, false
	for _, c := range containers(pod) {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			limit, request := quantity(c.Resources.Limits, name), quantity(c.Resources.Requests, name)
			any = any || limit.Sign() > 0 || request.Sign() > 0
			if request.Sign() == 0 {
				request = limit // as the API server's defaults have it
			}
			if limit.Sign() == 0 || limit.Cmp(request) != 0 {
				guaranteed = false
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

func containers(pod *v1.Pod) []v1.Container {
	return append(pod.Spec.InitContainers[:len(pod.Spec.InitContainers):len(pod.Spec.InitContainers)], pod.Spec.Containers...)
}

func quantity(l v1.ResourceList, name v1.ResourceName) resource.Quantity { return l[name] }

// total is what a pod needs at any one time: its containers and restartable init
// containers together, or the greediest init container with the restartable ones
// before it, and the overhead of its runtime class.
func total(pod *v1.Pod, of func(v1.ResourceRequirements) v1.ResourceList, name v1.ResourceName) int64 {
	value := func(l v1.ResourceList) int64 {
		q := l[name]
		if name == v1.ResourceCPU {
			return q.MilliValue()
		}
		return q.Value()
	}
	var sum, sidecars, peak int64
	for _, c := range pod.Spec.InitContainers {
		n := value(of(c.Resources))
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			sidecars += n
			n = 0
		}
		peak = max(peak, sidecars+n)
	}
	for _, c := range pod.Spec.Containers {
		sum += value(of(c.Resources))
	}
	return max(sum+sidecars, peak) + value(pod.Spec.Overhead)
}

// declared says whether every container has a limit of that name, so that their
// sum is the pod's.
func declared(pod *v1.Pod, name v1.ResourceName) bool {
	for _, c := range containers(pod) {
		if q := quantity(c.Resources.Limits, name); q.Sign() == 0 {
			return false
		}
	}
	return true
}

func requests(r v1.ResourceRequirements) v1.ResourceList {
	out := v1.ResourceList{}
	for k, v := range r.Limits {
		out[k] = v
	}
	for k, v := range r.Requests {
		out[k] = v
	}
	return out
}

func limits(r v1.ResourceRequirements) v1.ResourceList { return r.Limits }
