package outbox

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// TestOwnConditions checks that the node sends its own conditions and no conditions of other clients. It sends shared conditions only
// while the node has them.
func TestOwnConditions(t *testing.T) {
	all := []v1.PodConditionType{v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady,
		v1.PodScheduled, v1.AllContainersRestarting,
		v1.PodResizePending, v1.PodResizeInProgress, podspec.DevicesPlugged, v1.DisruptionTarget, "example.com/gate"}
	own, shared := all[:9], all[:10]
	var s v1.PodStatus
	for _, c := range all {
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: c})
	}
	types := func(s v1.PodStatus) (out []v1.PodConditionType) {
		for _, c := range s.Conditions {
			out = append(out, c.Type)
		}
		return out
	}
	if got := types(ownPart(s, &v1.PodStatus{})); !slices.Equal(got, own) {
		t.Errorf("%v", got)
	}
	if got := types(ownPart(s, &s)); !slices.Equal(got, shared) {
		t.Errorf("%v", got)
	}
	s.Conditions[9].Reason = v1.PodReasonTerminationByKubelet // a condition of a machine that was off
	if got := types(ownPart(s, &v1.PodStatus{})); !slices.Equal(got, shared) {
		t.Errorf("%v", got)
	}
}
