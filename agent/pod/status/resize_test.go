package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podtest"
)

func list(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

// This helper returns the input of a pod with one container. Its spec requests 200m of CPU (limit 400m) and 64Mi of memory (limit 128Mi).
// The container's actual resources are those that the caller passes.
func resized(has plan.Resources) plan.Input {
	pod := podtest.New("p", podtest.Requests(podtest.CPUAndMemory("200m", "64Mi")), podtest.Limits(podtest.CPUAndMemory("400m", "128Mi")))
	pod.Generation = 3
	return plan.Input{
		Want: pod, Admitted: true, Now: time.Unix(1e9, 0), Started: time.Unix(1e9-1, 0), Pending: plan.Pending{Generation: 3, Allocated: 3},
		Sizes: map[string]plan.Size{"c": {Resources: plan.Resources{Shares: 204, Milli: 400, Memory: 128 << 20}}},
		Observed: plan.Observed{Sandboxes: []plan.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}},
			Containers: []plan.Container{{ID: "1", Name: "c", SandboxID: "s", State: plan.Running, Resources: &has}}},
	}
}

func conditionOf(s v1.PodStatus, t v1.PodConditionType) *v1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// TestResize checks that the status contains the allocated and the actual resources. While a resize is in progress, a condition gives the
// reason.
func TestResize(t *testing.T) {
	old := resized(plan.Resources{Shares: 102, Milli: 200, Memory: 64 << 20})
	was := resized(plan.Resources{Shares: 102, Milli: 200, Memory: 64 << 20})
	was.Want.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list("cpu", "100m", "memory", "32Mi"), Limits: list("cpu", "200m", "memory", "64Mi")}
	was.Sizes = map[string]plan.Size{"c": {Resources: *was.Observed.Containers[0].Resources}}
	before := Compute(was, v1.PodStatus{}, Host{})
	if c := before.ContainerStatuses[0]; !equality.Semantic.DeepEqual(*c.Resources, was.Want.Spec.Containers[0].Resources) ||
		len(before.Conditions) != 5 {
		t.Errorf("before the resize: %+v, %+v", c, before.Conditions)
	}
	if r := before.Resources; !equality.Semantic.DeepEqual(*r, was.Want.Spec.Containers[0].Resources) ||
		!equality.Semantic.DeepEqual(before.AllocatedResources, r.Requests) {
		t.Errorf("the pod shows %+v", r)
	}

	now := Compute(old, before, Host{})
	c := now.ContainerStatuses[0]
	if want := (v1.ResourceRequirements{Requests: list("cpu", "100m", "memory", "32Mi"), Limits: list("cpu", "200m", "memory", "64Mi")}); !equality.Semantic.DeepEqual(*c.Resources, want) ||
		!equality.Semantic.DeepEqual(c.AllocatedResources, list("cpu", "200m", "memory", "64Mi")) ||
		!equality.Semantic.DeepEqual(*now.Resources, want) {
		t.Errorf("during the resize: %+v, the pod %+v", c, now.Resources)
	}
	if p := conditionOf(now, v1.PodResizeInProgress); p == nil || p.Status != v1.ConditionTrue || p.Reason != "" || p.ObservedGeneration != 3 {
		t.Errorf("condition %+v", p)
	}
	old.Failed = map[plan.Key]plan.Failure{{Op: plan.Resize}: {Message: "cannot"}}
	failed := Compute(old, now, Host{})
	if p := conditionOf(failed, v1.PodResizeInProgress); p == nil || p.Reason != v1.PodReasonError || p.Message != "cannot" {
		t.Errorf("condition %+v", p)
	}
	old.Failed, old.Now = nil, old.Now.Add(time.Minute) // the restarted agent has not tried the resize yet
	if p := conditionOf(Compute(old, failed, Host{}), v1.PodResizeInProgress); p == nil || p.Message != "cannot" || !p.LastTransitionTime.Equal(&conditionOf(failed, v1.PodResizeInProgress).LastTransitionTime) {
		t.Errorf("condition %+v", p)
	}
	fits := resized(plan.Resources{Shares: 204, Milli: 400, Memory: 128 << 20})
	fits.Unsure = true
	if conditionOf(Compute(fits, failed, Host{}), v1.PodResizeInProgress) == nil {
		t.Error("the pod as a whole may not have its resources yet")
	}
	fits.Unsure = false
	over := Compute(fits, failed, Host{})
	if c := over.ContainerStatuses[0]; len(over.Conditions) != 5 ||
		!equality.Semantic.DeepEqual(*c.Resources, fits.Want.Spec.Containers[0].Resources) || !c.Ready {
		t.Errorf("after the resize: %+v, %+v", c, over.Conditions)
	}
}

// TestPending checks that the condition of a pending resize stays until there is a new decision or the pod ends.
func TestPending(t *testing.T) {
	in := resized(plan.Resources{Shares: 204, Milli: 400, Memory: 128 << 20})
	in.Pending.Reason, in.Pending.Message, in.Pending.Generation = v1.PodReasonDeferred, "no room", 4
	first := Compute(in, v1.PodStatus{}, Host{})
	c := conditionOf(first, v1.PodResizePending)
	if c == nil || c.Reason != v1.PodReasonDeferred || c.Message != "no room" || c.ObservedGeneration != 4 || c.Status != v1.ConditionTrue {
		t.Fatalf("condition %+v", c)
	}
	in.Pending, in.Undecided, in.Now = plan.Pending{Generation: 4, Allocated: 3}, true, in.Now.Add(time.Hour)
	if got := conditionOf(Compute(in, first, Host{}), v1.PodResizePending); got == nil || *got != *c {
		t.Errorf("condition after a restart: %+v", got)
	}
	in.Undecided = false
	if got := conditionOf(Compute(in, first, Host{}), v1.PodResizePending); got != nil {
		t.Errorf("condition after the decision: %+v", got)
	}
	in.Pending.Reason, in.End = v1.PodReasonDeferred, &plan.End{Phase: v1.PodFailed}
	if got := conditionOf(Compute(in, first, Host{}), v1.PodResizePending); got != nil {
		t.Errorf("condition of a finished pod: %+v", got)
	}
}
