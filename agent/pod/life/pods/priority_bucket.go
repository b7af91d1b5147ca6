package pods

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// priorityBucket returns the value of the metrics' label priority_bucket for a pod with the given spec. The
// value is "unknown" if the spec is nil.
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
