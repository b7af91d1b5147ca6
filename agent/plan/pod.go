package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Sidecar reports whether an init container is restartable and so runs beside
// the main containers (KEP-753).
func Sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// QOS is the pod's quality of service class, by the requests and limits of CPU
// and memory of all its containers.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
func QOS(pod *v1.Pod) v1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	besteffort, guaranteed := true, true
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, r := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			req, lim := c.Resources.Requests[r], c.Resources.Limits[r]
			if !req.IsZero() || !lim.IsZero() {
				besteffort = false
			}
			if lim.IsZero() || !req.IsZero() && req.Cmp(lim) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case besteffort:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}
