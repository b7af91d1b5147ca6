package status

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// TestOff checks the status of a pod when the machine shuts down. After its end, the pod has the reason for the shutdown and is not ready.
// The phase is terminal only if the pod had finished before the shutdown or must not run again. A DisruptionTarget condition of the node is
// removed when the pod runs again. A condition of another component stays.
func TestOff(t *testing.T) {
	since, cut := t0.Add(-time.Minute), map[string]plan.Interruption{"c": plan.CutOff}
	late := func(c plan.Container) plan.Container { c.FinishedAt = t0.Add(-time.Second); return c }
	early := func(c plan.Container) plan.Container { c.FinishedAt = t0.Add(-time.Hour); return c }
	for _, tt := range []struct {
		name      string
		in        plan.Input
		want      string
		disrupted string
	}{
		{"still runs", plan.Input{Want: newPod("Always"), Observed: observedWith(running("c", 0)), ShutdownSince: since}, "Running c=Running+ Ready", nodeShutdown},
		{"has ended", plan.Input{Want: newPod("Always"), Observed: observedWith(late(ended("c", 143, 0))), ShutdownSince: since}, "Running Terminated c=Error", nodeShutdown},
		{"ended well", plan.Input{Want: newPod("OnFailure"), Observed: observedWith(late(ended("c", 0, 0))), ShutdownSince: since, Interrupted: cut}, "Running Terminated c=ContainerCreating<Completed", nodeShutdown},
		{"was being replaced", plan.Input{Want: newPod("Never"), Observed: observedWith(late(ended("c", 143, 0))), ShutdownSince: since, Interrupted: map[string]plan.Interruption{"c": plan.Replaced}}, "Running Terminated c=ContainerCreating<Error", nodeShutdown},
		{"ended well, and is about to run again", plan.Input{Want: newPod("OnFailure"), Observed: observedWith(late(ended("c", 0, 0))), Interrupted: cut}, "Running c=ContainerCreating<Completed", ""},
		{"ended well, and is deleted", plan.Input{Want: newPod("OnFailure"), Deleting: true, Observed: observedWith(late(ended("c", 0, 0))), Interrupted: cut}, "Failed c=Completed", "as it was"},
		{"completed by itself during the shutdown", plan.Input{Want: newPod("OnFailure"), Observed: observedWith(late(ended("c", 0, 0)))}, "Succeeded c=Completed", ""},
		{"may not run twice, after the boot", plan.Input{Want: newPod("Never"), Observed: observedWith(late(ended("c", 0, 0))), Interrupted: cut}, "Failed c=Completed", "as it was"},
		{"may not run twice", plan.Input{Want: newPod("Never"), Observed: observedWith(late(ended("c", 0, 0))), ShutdownSince: since}, "Failed Terminated c=Completed", nodeShutdown},
		{"was done before", plan.Input{Want: newPod("Never"), Observed: observedWith(early(ended("c", 0, 0))), ShutdownSince: since}, "Succeeded c=Completed", ""},
		{"after the boot", plan.Input{Want: newPod("Always"), Observed: observedWith(running("c", 1))}, "Running c=Running+ Ready", ""},
		{"is preempted", plan.Input{Want: newPod("Always"), Observed: observedWith(running("c", 0)), End: &plan.End{Reason: plan.Preempting}}, "Running c=Running+ Ready", "Pod was preempted by Kubelet to accommodate a critical pod."},
		{"is evicted", plan.Input{Want: newPod("Always"), Observed: observedWith(running("c", 0)), End: &plan.End{Reason: plan.Evicted, Message: "why", Disrupted: true}}, "Running c=Running+ Ready", "why"},
		{"was evicted", plan.Input{Want: newPod("Always"), Observed: observedWith(ended("c", 137, 0)), End: &plan.End{Reason: plan.Evicted, Message: "why", Disrupted: true}}, "Failed Evicted c=Error", "why"},
		{"exceeds its limit", plan.Input{Want: newPod("Always"), Observed: observedWith(ended("c", 137, 0)), End: &plan.End{Reason: plan.Evicted, Message: "why"}}, "Failed Evicted c=Error", ""},
		{"was preempted", plan.Input{Want: newPod("Always"), Observed: observedWith(ended("c", 143, 0)), End: &plan.End{Reason: plan.Preempting}}, "Failed Preempting c=Error", "Pod was preempted by Kubelet to accommodate a critical pod."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Now, tt.in.Admitted = t0, true
			before := v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: "as it was"}, {Type: "mine"}}}
			st := Compute(tt.in, before, Host{})
			if got := brief(st); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			i := slices.IndexFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
			if i < 0 && tt.disrupted != "" || i >= 0 && st.Conditions[i].Message != tt.disrupted {
				t.Errorf("%+v, want %q", st.Conditions, tt.disrupted)
			}
			before.Conditions[0].Reason = "EvictionByEvictionAPI"
			if st := Compute(tt.in, before, Host{}); !slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget }) {
				t.Error("the condition of another component was removed")
			}
		})
	}
}
