package demand

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// These are the priorities of the built-in priority classes. The lower one is the minimum priority
// of a system pod.
// https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
const (
	SystemCritical     = 2_000_000_000 // system-cluster-critical
	SystemNodeCritical = 2_000_001_000 // system-node-critical
)

var classes = map[string]int32{
	"system-cluster-critical": SystemCritical,
	"system-node-critical":    SystemNodeCritical,
}

// Rank sets the priority of a pod from its priority class, as the API server does, for pods that do
// not come from the API server. It knows only the two built-in classes, because the node does not
// have the PriorityClass objects of a cluster. It does not change a priority that is already set.
// https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
func Rank(pod *v1.Pod) {
	if priority, known := classes[pod.Spec.PriorityClassName]; known && pod.Spec.Priority == nil {
		pod.Spec.Priority = &priority
	}
}

// Critical reports whether other pods may be preempted for this one, because it is the node's own
// pod or has a system priority.
func Critical(pod *v1.Pod) bool { return Own(pod) || System(pod) }

// System reports whether a pod has a system priority. For the node's own pods, Rank has set the priority according to
// their priority class.
func System(pod *v1.Pod) bool { return AtLeast(pod, SystemCritical) }

// AtLeast reports whether a pod's priority is not lower than the given one.
func AtLeast(pod *v1.Pod, priority int32) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= priority
}

// Own reports whether a pod is the node's own, that is, does not come from the API server.
func Own(pod *v1.Pod) bool {
	source, known := pod.Annotations[keys.ConfigSource]
	return known && source != keys.SourceAPI
}
