package pods

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// priorityBucket returns the value that a pod has in the label priority_bucket of metrics. It is "unknown" if spec is
// nil.
func priorityBucket(spec *v1.PodSpec) string {
	if spec == nil {
		return "unknown"
	}
	priority := int32(0)
	if spec.Priority != nil {
		priority = *spec.Priority
	}
	switch {
	case priority >= demand.SystemCritical:
		return "system-critical"
	case priority >= 100_000:
		return "high"
	case priority > 0:
		return "medium"
	case priority == 0:
		return "normal"
	case priority > -1000:
		return "low"
	}
	return "very-low"
}
