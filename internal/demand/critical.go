package demand

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// The priorities of the classes that every cluster has, the lower of which is the least of a
// system's pod.
// https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
const (
	SystemCritical     = 2_000_000_000 // system-cluster-critical
	SystemNodeCritical = 2_000_001_000 // system-node-critical
)

var classes = map[string]int32{
	"system-cluster-critical": SystemCritical,
	"system-node-critical":    SystemNodeCritical,
}

// Rank gives a pod of the node's own the priority of its class, as the API server would, if it is
// one of the two that every cluster has. Others are objects of a cluster, which the node does not
// know. A priority that it has stays.
// https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
func Rank(pod *v1.Pod) {
	if priority, known := classes[pod.Spec.PriorityClassName]; known && pod.Spec.Priority == nil {
		pod.Spec.Priority = &priority
	}
}

// Critical reports whether a pod is the node's own, or its priority is that of the system:
// others make room for it.
func Critical(pod *v1.Pod) bool { return Own(pod) || System(pod) }

// System reports whether the priority of a pod is that of the system. A manifest of the node's
// own has it of its class (Rank).
func System(pod *v1.Pod) bool { return AtLeast(pod, SystemCritical) }

// AtLeast reports whether a pod has that priority or a higher one.
func AtLeast(pod *v1.Pod, priority int32) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= priority
}

// Own reports whether a pod is the node's own, and not the API server's.
func Own(pod *v1.Pod) bool {
	source, known := pod.Annotations[keys.ConfigSource]
	return known && source != keys.SourceAPI
}
