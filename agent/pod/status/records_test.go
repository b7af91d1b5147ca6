package status

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// refusal returns the first container whose terminated state the API server does not let go, because the restart policy does not start the
// container again. These are the rules of ValidateContainerStateTransition and ValidateInitContainerStateTransition of Kubernetes 1.37.
func refusal(pod *v1.Pod, before, now *v1.PodStatus) string {
	for old := range podspec.PermanentStatuses(before) {
		_, ctr := podspec.Find(&pod.Spec, old.Name)
		if old.State.Terminated == nil || plan.WillRestart(plan.Input{Want: pod}, ctr, plan.Container{ExitCode: old.State.Terminated.ExitCode}) {
			continue
		}
		for st := range podspec.PermanentStatuses(now) {
			if st.Name == old.Name && st.State.Terminated == nil {
				return st.Name
			}
		}
	}
	return ""
}

// TestLostRecords checks the statuses of pods whose containers the runtime forgets. The API server must accept the last status of the pod.
// It must also accept every other status, except those in which a completed container runs for a second time.
func TestLostRecords(t *testing.T) {
	init := ended("i", 0, 0)
	done := func(name string) plan.Container { return ended(name, 0, 0) }
	for name, steps := range map[string][]struct {
		seen plan.Observed
		want string // not compared with the restart policy Always
		end  bool   // the pod is deleted
		runs bool   // a completed container runs for a second time
	}{
		"init container": {
			{seen: observedWith(init), want: "Pending i=Completed+ c=PodInitializing d=PodInitializing"},
			{seen: observedWith(init, running("c", 0), running("d", 0)), want: "Running i=Completed+ c=Running+ d=Running+ Ready"},
			{seen: observedWith(running("c", 0), running("d", 0)), want: "Running i=Completed+ c=Running+ d=Running+ Ready"},
			{seen: observedWith(done("c"), running("d", 0), running("c", 1)), want: "Running i=Completed+ c=Running<Completed+ d=Running+ Ready"},
			{seen: observedWith(done("c"), done("d")), end: true, want: "Succeeded i=Completed+ c=Completed d=Completed"},
		},
		"init container, before this agent saw it": {
			{seen: observedWith(running("c", 0), running("d", 0)), want: "Running i=Completed+ c=Running+ d=Running+ Ready"},
			{seen: plan.Observed{}, end: true, want: "Failed i=Completed+ c=ContainerStatusUnknown d=ContainerStatusUnknown"},
		},
		"all records of ended containers": {
			{seen: observedWith(init, done("c"), running("d", 0)), want: "Running i=Completed+ c=Completed d=Running+"},
			{seen: observedWith(running("d", 0)), want: "Running i=Completed+ c=Completed d=Running+"},
			{seen: observedWith(running("d", 0), running("c", 0)), runs: true, want: "Running i=Completed+ c=Running+ d=Running+ Ready"},
			{seen: dead(), end: true, want: "Failed i=Completed+ c=ContainerStatusUnknown d=ContainerStatusUnknown"},
		},
		"completed container, and the pod is deleted": {
			{seen: observedWith(init, done("c"), running("d", 0)), want: "Running i=Completed+ c=Completed d=Running+"},
			{seen: observedWith(running("d", 0)), want: "Running i=Completed+ c=Completed d=Running+"},
			{seen: observedWith(done("d")), end: true, want: "Succeeded i=Completed+ c=Completed d=Completed"},
		},
		"init container of a pod that initializes": {
			{seen: observedWith(init), want: "Pending i=Completed+ c=PodInitializing d=PodInitializing"},
			{seen: observedWith(), want: "Pending i=Completed+ c=PodInitializing d=PodInitializing"},
			{seen: dead(), end: true, want: "Failed i=Completed+ c=PodInitializing d=PodInitializing"},
		},
	} {
		for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever} {
			t.Run(fmt.Sprint(name, " ", policy), func(t *testing.T) {
				pod := newPod(policy)
				pod.Spec.InitContainers = []v1.Container{{Name: "i"}}
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "d"})
				var before, server v1.PodStatus
				for i, step := range steps {
					in := plan.Input{Want: pod, Now: t0.Add(time.Second), Started: t0, Deleting: step.end, Observed: step.seen}
					now := Compute(in, before, Host{})
					if got := brief(now); policy != v1.RestartPolicyAlways && got != step.want {
						t.Errorf("step %d\ngot  %s\nwant %s", i, got, step.want)
					}
					refused := refusal(pod, &server, &now)
					if refused != "" && !step.runs {
						t.Errorf("step %d: the API server refuses the state of %s: %s", i, refused, brief(now))
					}
					if refused == "" {
						server = now
					}
					before = now
				}
			})
		}
	}
}

// TestRestartsOfLostRecords checks that the number of restarts does not fall when the runtime loses the records of a container. It begins
// again in another life of the pod.
func TestRestartsOfLostRecords(t *testing.T) {
	before := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{Name: "c", RestartCount: 5, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}}
	for _, c := range []struct {
		name  string
		in    plan.Input
		phase v1.PodPhase
		want  int32
	}{
		{"no record", plan.Input{Want: newPod("Always"), Observed: observedWith()}, v1.PodRunning, 5},
		{"runs again", plan.Input{Want: newPod("Always"), Observed: observedWith(running("c", 6))}, v1.PodRunning, 6},
		{"runs again, without its former logs", plan.Input{Want: newPod("Always"), Observed: observedWith(running("c", 0))}, v1.PodRunning, 5},
		{"has ended", plan.Input{Want: newPod("Never"), Observed: observedWith(ended("c", 0, 0))}, v1.PodSucceeded, 5},
		{"another life", plan.Input{Want: newPod("Always"), Observed: observedWith(running("c", 1))}, v1.PodFailed, 1},
	} {
		before.Phase = c.phase
		if got := Compute(c.in, before, Host{}).ContainerStatuses[0].RestartCount; got != c.want {
			t.Errorf("%s: %d restarts, want %d", c.name, got, c.want)
		}
	}
}
