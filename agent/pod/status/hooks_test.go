package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

func hooking(c plan.Container) plan.Container { c.PostStart = true; return c }

func inRound(c plan.Container, round uint32) plan.Container { c.Round = round; return c }

// restarts returns a pod whose containers all restart when c exits with code 42.
func restarts() *v1.Pod {
	p := newPod("Never")
	never := v1.ContainerRestartPolicyNever
	p.Spec.InitContainers = []v1.Container{{Name: "i"}}
	p.Spec.Containers[0].RestartPolicy = &never
	p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}}
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "d"})
	return p
}

func TestHooks(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	side := newPod("Never")
	side.Spec.InitContainers = []v1.Container{{Name: "s", RestartPolicy: &always}}
	err := map[plan.Key]plan.Failure{{Container: "c", Op: plan.PostStart}: {N: 1, ID: "c", Reason: plan.PostStartHookError, Message: "why"}}
	for _, tt := range []struct {
		name string
		in   plan.Input
		want string
	}{
		{"the hook runs", plan.Input{Want: newPod("Always"), Observed: observedWith(hooking(running("c", 0)))}, "Pending c=ContainerCreating"},
		{"it has returned", plan.Input{Want: newPod("Always"), Observed: observedWith(hooking(running("c", 0))), Hooked: map[string]bool{"c": true}}, "Running c=Running+ Ready"},
		{"it failed", plan.Input{Want: newPod("Always"), Observed: observedWith(hooking(running("c", 0))), Failed: err}, "Pending c=PostStartHookError"},
		{"its container has ended", plan.Input{Want: newPod("Always"), Now: t0, Observed: observedWith(hooking(ended("c", 137, 0))), Failed: err}, "Running c=PostStartHookError<Error"},
		{"again and again", plan.Input{Want: newPod("Always"), Now: t0, Observed: observedWith(hooking(ended("c", 137, 1))), Failed: err}, "Running c=CrashLoopBackOff<Error"},
		{"and never again", plan.Input{Want: newPod("Never"), Now: t0, Observed: observedWith(hooking(ended("c", 137, 0))), Failed: err}, "Failed c=Error"},
		{"it runs while the pod ends", plan.Input{Want: newPod("Always"), Deleting: true, Observed: observedWith(hooking(running("c", 0)))}, "Running c=Running"},

		{"a sidecar's end does not count", plan.Input{Want: side, Now: t0, Observed: observedWith(ended("s", 7, 0), ended("c", 0, 0))}, "Succeeded s=Error c=Completed"},
		{"a sidecar still runs", plan.Input{Want: side, Now: t0, Observed: observedWith(running("s", 0), ended("c", 0, 0))}, "Running s=Running+ c=Completed"},

		{"all restart", plan.Input{Want: restarts(), Now: t0, Observed: observedWith(ended("i", 0, 0), ended("c", 42, 0), running("d", 0))},
			"Running i=RestartingAllContainers<Completed c=RestartingAllContainers<Error d=Running+"},
		{"init runs again", plan.Input{Want: restarts(), Now: t0, Observed: observedWith(inRound(running("i", 1), 1), ended("c", 42, 0), ended("d", 137, 0))},
			"Running i=Running c=RestartingAllContainers<Error d=RestartingAllContainers<Error"},
		{"all run again", plan.Input{Want: restarts(), Now: t0, Observed: observedWith(inRound(ended("i", 0, 1), 1), inRound(running("c", 1), 1), inRound(running("d", 1), 1))},
			"Running i=Completed+ c=Running+ d=Running+ Ready"},
		{"the source waits", plan.Input{Want: restarts(), Now: t0, Observed: observedWith(inRound(ended("i", 0, 1), 1), inRound(running("d", 1), 1), ended("c", 42, 3))},
			"Running i=Completed+ c=CrashLoopBackOff<Error d=Running+"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}}}
			if got := brief(Compute(tt.in, before, Host{Runtime: "containerd"})); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestEphemeral checks that the status contains the states of ephemeral containers. These states do not change other fields.
func TestEphemeral(t *testing.T) {
	pod := newPod("Never")
	alone := Compute(plan.Input{Want: pod, Now: t0, Observed: observedWith(running("c", 0))}, v1.PodStatus{}, Host{Runtime: "containerd"})
	pod = pod.DeepCopy()
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "debug:1"}}}
	failure := map[plan.Key]plan.Failure{{Container: "e", Op: plan.StartContainer}: {N: 1, Reason: plan.CreateContainerError, Message: "why", At: t0}}
	for name, tt := range map[string]struct {
		in   plan.Input
		want v1.ContainerState
	}{
		"starts": {plan.Input{Observed: observedWith(running("c", 0))}, v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: plan.ContainerCreating}}},
		"fails":  {plan.Input{Observed: observedWith(running("c", 0)), Failed: failure}, v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: plan.CreateContainerError, Message: "why"}}},
		"runs":   {plan.Input{Observed: observedWith(running("c", 0), running("e", 0))}, v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: *toSeconds(t0)}}},
		"ended": {plan.Input{Observed: observedWith(running("c", 0), ended("e", 3, 0))}, v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: 3, Reason: "Error", StartedAt: *toSeconds(t0.Add(-time.Second)), FinishedAt: *toSeconds(t0), ContainerID: "containerd://e"}}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.in.Want, tt.in.Now = pod, t0
			st := Compute(tt.in, v1.PodStatus{}, Host{Runtime: "containerd"})
			if len(st.EphemeralContainerStatuses) != 1 {
				t.Fatalf("%+v", st.EphemeralContainerStatuses)
			}
			c := st.EphemeralContainerStatuses[0]
			if c.Name != "e" || c.Ready || c.Started != nil || c.RestartCount != 0 {
				t.Errorf("%+v", c)
			}
			equal(t, c.State, tt.want)
			st.EphemeralContainerStatuses = nil
			equal(t, st, alone)
		})
	}
}

// TestRestarting checks that a pod has the condition AllContainersRestarting only if one of its rules restarts all containers.
func TestRestarting(t *testing.T) {
	condition := func(in plan.Input) string {
		in.Now = t0
		for _, c := range Compute(in, v1.PodStatus{}, Host{}).Conditions {
			if c.Type == v1.AllContainersRestarting {
				return strings.TrimSpace(string(c.Status) + " " + c.Reason + " " + c.Message)
			}
		}
		return "none"
	}
	const started = "True RestartAllContainersStarted container exited with restart policy rule"
	for want, in := range map[string]plan.Input{
		"none":               {Want: newPod("Never"), Observed: observedWith(ended("c", 42, 0))},
		"False":              {Want: restarts(), Observed: observedWith(ended("i", 0, 0), running("c", 0), running("d", 0))},
		started:              {Want: restarts(), Observed: observedWith(ended("i", 0, 0), ended("c", 42, 0), running("d", 0))},
		started + " ":        {Want: restarts(), Observed: observedWith(ended("i", 0, 0), ended("c", 42, 0), ended("d", 137, 0))},
		"False ":             {Want: restarts(), Observed: observedWith(inRound(running("i", 1), 1), ended("c", 42, 0), ended("d", 137, 0))},
		"False PodCompleted": {Want: restarts(), Observed: observedWith(ended("i", 0, 0), ended("c", 0, 0), ended("d", 0, 0))},
		"False PodFailed":    {Want: restarts(), Observed: observedWith(ended("i", 0, 0), ended("c", 1, 0), ended("d", 0, 0))},
	} {
		if got := condition(in); got != strings.TrimSpace(want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestGeneration checks that the status and its conditions contain the generation of the observed spec.
func TestGeneration(t *testing.T) {
	pod := restarts()
	pod.Generation = 7
	before := v1.PodStatus{ObservedGeneration: 3, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, ObservedGeneration: 3}, {Type: "example.com/other", ObservedGeneration: 2}}}
	st := Compute(plan.Input{Want: pod, Now: t0, Observed: observedWith(ended("i", 0, 0), running("c", 0), running("d", 0))}, before, Host{})
	if st.ObservedGeneration != 7 {
		t.Errorf("generation %d", st.ObservedGeneration)
	}
	for _, c := range st.Conditions {
		if want := map[bool]int64{true: 2, false: 7}[c.Type == "example.com/other"]; c.ObservedGeneration != want {
			t.Errorf("%s is of generation %d, not %d", c.Type, c.ObservedGeneration, want)
		}
	}
	if len(st.Conditions) != 7 {
		t.Errorf("%d conditions", len(st.Conditions))
	}
}

// TestStopSignal checks that the status contains the effective stop signal of a container if the container's spec sets one.
func TestStopSignal(t *testing.T) {
	asks := &v1.Lifecycle{StopSignal: new(v1.SIGRTMINPLUS3)}
	for _, tt := range []struct {
		lifecycle    *v1.Lifecycle
		signal, want string
	}{{nil, "SIGTERM", "none"}, {&v1.Lifecycle{}, "SIGTERM", "none"}, {asks, "", "none"}, {asks, "SIGRTMIN+3", "SIGRTMIN+3"}} {
		c, pod, got := running("c", 0), newPod("Always"), "none"
		c.StopSignal, pod.Spec.Containers[0].Lifecycle = tt.signal, tt.lifecycle
		if s := Compute(plan.Input{Want: pod, Now: t0, Observed: observedWith(c)}, v1.PodStatus{}, Host{}).ContainerStatuses[0].StopSignal; s != nil {
			got = string(*s)
		}
		if got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
