package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// TestPlugged checks that a pod gets a condition when a device is unplugged. The condition stays when the device is plugged in again.
func TestPlugged(t *testing.T) {
	in := resized(plan.Resources{})
	away := Host{MissingDevices: func(types.UID) []string { return []string{"one is away", "another too"} }}
	back := Host{MissingDevices: func(types.UID) []string { return nil }}
	if c := conditionOf(Compute(in, v1.PodStatus{}, back), podspec.DevicesPlugged); c != nil {
		t.Errorf("a pod whose devices were always there: %+v", c)
	}
	gone := Compute(in, v1.PodStatus{}, away)
	if c := conditionOf(gone, podspec.DevicesPlugged); c == nil || c.Status != v1.ConditionFalse || c.Reason != "DeviceUnplugged" ||
		c.Message != "one is away; another too" {
		t.Errorf("away: %+v", c)
	}
	again := Compute(in, gone, back)
	if c := conditionOf(again, podspec.DevicesPlugged); c == nil || c.Status != v1.ConditionTrue || c.Reason != "" || c.Message != "" {
		t.Errorf("back: %+v", c)
	}
	if n := len(Compute(in, again, back).Conditions); n != len(again.Conditions) {
		t.Errorf("%d conditions, then %d", len(again.Conditions), n)
	}
}

// TestPluggedGate checks that a pod with a readiness gate for its devices is ready while all of them are plugged in.
func TestPluggedGate(t *testing.T) {
	in := plan.Input{Want: newPod("Always"), Observed: observedWith(running("c", 0))}
	in.Want.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: podspec.DevicesPlugged}}
	in.Want.Status.Conditions = []v1.PodCondition{{Type: podspec.DevicesPlugged, Status: v1.ConditionUnknown}} // what the API server has
	for _, gone := range [][]string{nil, {"one is away"}, nil} {
		st := Compute(in, v1.PodStatus{}, Host{MissingDevices: func(types.UID) []string { return gone }})
		c := conditionOf(st, podspec.DevicesPlugged)
		if plugged := len(gone) == 0; c == nil || (c.Status == v1.ConditionTrue) != plugged || podspec.IsReady(&st) != plugged {
			t.Errorf("%d devices are away: %+v, ready: %t", len(gone), c, podspec.IsReady(&st))
		}
	}
}

// TestNodeConditions checks that all conditions that the node sets are known as such, because the API server gets no others.
// DisruptionTarget belongs to several writers.
func TestNodeConditions(t *testing.T) {
	away := Host{MissingDevices: func(types.UID) []string { return []string{"away"} }}
	all := []life{{in: plan.Input{Want: restarts(), Now: t0, Observed: observedWith(ended("i", 0, 0), ended("c", 42, 0), running("d", 0))}}}
	resizing := resized(plan.Resources{Shares: 102})
	resizing.Pending.Reason = v1.PodReasonDeferred
	all = append(all, life{in: resizing})
	for _, l := range lives() {
		all = append(all, l)
	}
	seen := map[v1.PodConditionType]bool{}
	for _, l := range all {
		l.before.Conditions = nil
		for _, c := range Compute(l.in, l.before, away).Conditions {
			seen[c.Type] = true
		}
	}
	if len(seen) != 10 {
		t.Errorf("the lives do not have all conditions: %v", seen)
	}
	for c := range seen {
		if !podspec.IsNodeCondition(c) && c != v1.DisruptionTarget {
			t.Errorf("the API server does not get the condition %s", c)
		}
	}
}
