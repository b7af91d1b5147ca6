package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// TestPlugged checks that a pod gets a condition when a device is unplugged. The condition stays when the device is plugged in again.
func TestPlugged(t *testing.T) {
	in := resized(plan.Resources{})
	away := Host{MissingDevices: func(types.UID) []string { return []string{"one is away", "another too"} }}
	back := Host{MissingDevices: func(types.UID) []string { return nil }}
	if c := conditionOf(Compute(in, v1.PodStatus{}, back), DevicesPlugged); c != nil {
		t.Errorf("a pod whose devices were always there: %+v", c)
	}
	gone := Compute(in, v1.PodStatus{}, away)
	if c := conditionOf(gone, DevicesPlugged); c == nil || c.Status != v1.ConditionFalse || c.Reason != "DeviceUnplugged" ||
		c.Message != "one is away; another too" {
		t.Errorf("away: %+v", c)
	}
	again := Compute(in, gone, back)
	if c := conditionOf(again, DevicesPlugged); c == nil || c.Status != v1.ConditionTrue || c.Reason != "" || c.Message != "" {
		t.Errorf("back: %+v", c)
	}
	if n := len(Compute(in, again, back).Conditions); n != len(again.Conditions) {
		t.Errorf("%d conditions, then %d", len(again.Conditions), n)
	}
}
