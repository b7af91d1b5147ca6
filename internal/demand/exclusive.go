package demand

import v1 "k8s.io/api/core/v1"

// ExclusiveCPUs returns the number of exclusive CPUs that a container needs. It is the container's CPU request if the pod is
// guaranteed and the request is a whole number. Otherwise, and for pods with pod-level resources, it is 0.
func ExclusiveCPUs(pod *v1.Pod, ctr *v1.Container) int {
	if pod.Spec.Resources != nil || Class(pod) != v1.PodQOSGuaranteed {
		return 0
	}
	q, asked := ctr.Resources.Requests[v1.ResourceCPU]
	if !asked { // the API server defaults the request to the limit
		q = ctr.Resources.Limits[v1.ResourceCPU]
	}
	if n := q.Value(); n > 0 && n < 1<<16 && q.MilliValue() == n*1000 {
		return int(n)
	}
	return 0
}
