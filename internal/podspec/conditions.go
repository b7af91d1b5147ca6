package podspec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// HasCondition reports whether a condition of the pod is True. A missing condition is not.
func HasCondition(st *v1.PodStatus, t v1.PodConditionType) bool {
	return slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == t && c.Status == v1.ConditionTrue })
}

// IsReady reports whether the pod has the condition Ready.
func IsReady(st *v1.PodStatus) bool { return HasCondition(st, v1.PodReady) }
