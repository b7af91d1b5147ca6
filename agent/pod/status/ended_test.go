package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// TestEnd checks that a pod's phase becomes terminal only when no container runs or is about to start. A terminal phase does not change any
// more.
func TestEnd(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	hour := int64(3600)
	short := newPod("Always")
	short.Spec.ActiveDeadlineSeconds = &hour
	sidecar := newPod("Never")
	sidecar.Spec.InitContainers = []v1.Container{{Name: "s", RestartPolicy: &always}}
	late := t0.Add(2 * time.Hour)
	evicted := &plan.End{Reason: "Evicted"}
	starting := map[string]plan.RunningAction{"c": {Action: plan.Action{Op: plan.StartContainer, Container: "c"}}}
	gone := plan.Observed{Sandboxes: []plan.Sandbox{{ID: "s"}}}
	ran := func(state v1.ContainerState) v1.PodStatus {
		return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: state, Ready: state.Running != nil}}}
	}
	up := ran(v1.ContainerState{Running: &v1.ContainerStateRunning{}})
	completed := ran(v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}})
	crashing := ran(v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}})
	crashing.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}
	fresh := ran(v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}})
	for _, tt := range []struct {
		name   string
		in     plan.Input
		before v1.PodStatus
		want   string
	}{
		{"its deadline is over", plan.Input{Want: short, Now: late, Started: t0, Observed: observedWith(running("c", 0))}, up, "Running c=Running+ Ready"},
		{"and it has stopped", plan.Input{Want: short, Now: late, Started: t0, Observed: observedWith(ended("c", 143, 0))}, up, "Failed DeadlineExceeded c=Error"},
		{"it did not even start in time", plan.Input{Want: short, Now: late, Started: t0}, fresh, "Failed DeadlineExceeded c=ContainerCreating"},
		{"while it starts", plan.Input{Want: short, Now: late, Started: t0, Observed: observedWith(), InFlight: starting}, fresh, "Pending c=ContainerCreating"},
		{"evicted, and runs", plan.Input{Want: newPod("Always"), Now: t0, End: evicted, Observed: observedWith(running("c", 0))}, up, "Running c=Running+ Ready"},
		{"its sidecar still runs", plan.Input{Want: sidecar, Now: t0, Observed: observedWith(ended("c", 0, 0), running("s", 0))}, up, "Running s=Running+ c=Completed"},
		{"refused", plan.Input{Want: newPod("Always"), Now: t0, End: &plan.End{Reason: "OutOfcpu"}}, v1.PodStatus{}, "Failed OutOfcpu"},
		{"ended long ago", plan.Input{Want: newPod("Never"), Now: t0, End: &plan.End{Phase: v1.PodSucceeded}}, completed, "Succeeded c=Completed"},
		{"ended long ago, runs", plan.Input{Want: newPod("Never"), Now: t0, End: &plan.End{Phase: v1.PodFailed, Reason: "NodeLost"}, Observed: observedWith(running("c", 0))}, up,
			"Failed NodeLost c=Running+"},
		{"lost, and ended", plan.Input{Want: newPod("Never"), Now: t0, End: &plan.End{Phase: v1.PodFailed}}, up, "Failed c=ContainerStatusUnknown"},
		{"crashed, and ended", plan.Input{Want: newPod("Always"), Now: t0, End: &plan.End{Phase: v1.PodFailed}}, crashing, "Failed c=Error"},
		{"deleted, and removed", plan.Input{Want: newPod("Always"), Now: t0, Deleting: true, Observed: gone}, completed, "Succeeded c=Completed"},
		{"deleted before it ran", plan.Input{Want: newPod("Always"), Now: t0, Deleting: true, Observed: gone}, fresh, "Failed c=ContainerCreating"},
		{"deleted as it starts", plan.Input{Want: newPod("Always"), Now: t0, Deleting: true, Observed: observedWith(), InFlight: starting}, fresh, "Pending c=ContainerCreating"},
		{"lost, and wanted", plan.Input{Want: newPod("Always"), Now: t0, Observed: observedWith()}, up, "Pending c=ContainerCreating"},
		{"replaced", plan.Input{Want: newPod("Never"), Now: t0, Observed: observedWith(ended("c", 143, 0)), Interrupted: map[string]plan.Interruption{"c": plan.Replaced}}, up, "Running c=ContainerCreating<Error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := brief(Compute(tt.in, tt.before, Host{})); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
