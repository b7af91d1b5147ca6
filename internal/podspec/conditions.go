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

// DevicesPlugged is a condition of pods that use devices from the node's configuration. A pod gets the condition when one of its devices is
// unplugged for the first time. A pod with a readiness gate of this type always has the condition.
const DevicesPlugged v1.PodConditionType = "islet.dev/DevicesPlugged"

// IsNodeCondition reports whether only the node sets conditions of a type. Other clients, too, set the condition DisruptionTarget.
func IsNodeCondition(t v1.PodConditionType) bool {
	switch t {
	case v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled, v1.AllContainersRestarting,
		v1.PodResizePending, v1.PodResizeInProgress, DevicesPlugged:
		return true
	}
	return false
}
