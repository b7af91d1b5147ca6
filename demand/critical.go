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
	source, known := pod.Annotations[keys.ConfigSource]
	return known && source != keys.SourceAPI || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}
