package demand

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/keys"
)

// systemCritical is the least priority of the classes system-cluster-critical and
// system-node-critical.
const systemCritical = 2_000_000_000

// Critical reports whether a pod is the node's own, or its priority is that of the system:
// others make room for it.
// https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
func Critical(pod *v1.Pod) bool {
	return own(pod) || System(pod)
}

// System reports whether the priority of a pod is that of the system. Priority classes are
// objects of a cluster; a manifest of the node's own may name those that every cluster has.
func System(pod *v1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical ||
		own(pod) && (pod.Spec.PriorityClassName == "system-node-critical" || pod.Spec.PriorityClassName == "system-cluster-critical")
}

// own reports whether a pod is the node's own, and not the API server's.
func own(pod *v1.Pod) bool {
	source, known := pod.Annotations[keys.ConfigSource]
	return known && source != keys.SourceAPI
}
