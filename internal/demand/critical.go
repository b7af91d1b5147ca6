package demand

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// These are the priorities of the built-in priority classes. SystemCritical is also the minimum
// priority of a system pod.
// https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
const (
	SystemCritical     = 2_000_000_000 // system-cluster-critical
	SystemNodeCritical = 2_000_001_000 // system-node-critical
)

var priorityClasses = map[string]int32{
	"system-cluster-critical": SystemCritical,
	"system-node-critical":    SystemNodeCritical,
}

// SetPriority sets the priority of a pod according to its priority class, as the API server does.
// Call it for pods that do not come from the API server. It supports only the two built-in classes,
// because the node does not have the cluster's PriorityClass objects. It does not change a priority
// that is already set.
// https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
func SetPriority(pod *v1.Pod) {
	if priority, known := priorityClasses[pod.Spec.PriorityClassName]; known && pod.Spec.Priority == nil {
		pod.Spec.Priority = &priority
	}
}

// IsCritical reports whether a pod is one of the node's own pods or has a system priority. Other
// pods may be preempted for such a pod.
func IsCritical(pod *v1.Pod) bool { return IsOwn(pod) || HasSystemPriority(pod) }

// HasSystemPriority reports whether a pod has a system priority. For the node's own pods, SetPriority must have been
// called.
func HasSystemPriority(pod *v1.Pod) bool { return HasPriority(pod, SystemCritical) }

// HasPriority reports whether a pod has at least the given priority.
func HasPriority(pod *v1.Pod, priority int32) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= priority
}

// IsOwn reports whether a pod is one of the node's own pods. These pods do not come from the API
// server.
func IsOwn(pod *v1.Pod) bool {
	source, known := pod.Annotations[keys.ConfigSource]
	return known && source != keys.SourceAPI
}
