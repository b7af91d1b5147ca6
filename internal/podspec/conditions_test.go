package podspec_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

func TestIsReady(t *testing.T) {
	for _, tt := range []struct {
		name  string
		list  []v1.PodCondition
		ready bool
	}{
		{"no conditions", nil, false},
		{"another condition", []v1.PodCondition{{Type: v1.ContainersReady, Status: v1.ConditionTrue}}, false},
		{"false", []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}}, false},
		{"unknown", []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionUnknown}}, false},
		{"true", []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionFalse}, {Type: v1.PodReady, Status: v1.ConditionTrue}}, true},
	} {
		if got := podspec.IsReady(&v1.PodStatus{Conditions: tt.list}); got != tt.ready {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
