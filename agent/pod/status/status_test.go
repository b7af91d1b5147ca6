package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newPod(policy v1.RestartPolicy) *v1.Pod {
	return podtest.New("web", podtest.UID("u1"), podtest.RestartPolicy(policy), podtest.Image("app:1"))
}

func observedWith(c ...plan.Container) plan.Observed {
	for i := range c {
		c[i].SandboxID = "s"
	}
	return plan.Observed{Sandboxes: []plan.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.7"}}}, Containers: c}
}

// This helper returns the observed state of a pod whose sandbox is not ready.
func dead(c ...plan.Container) plan.Observed {
	o := observedWith(c...)
	o.Sandboxes[0].Ready = false
	return o
}

func running(name string, attempt uint32) plan.Container {
	return plan.Container{ID: name, Name: name, Attempt: attempt, State: plan.Running, StartedAt: t0}
}

func ended(name string, code int32, streak uint32) plan.Container {
	return plan.Container{ID: name, Name: name, State: plan.Exited, ExitCode: code, Streak: streak, StartedAt: t0.Add(-time.Second), FinishedAt: t0}
}

func failed(reason string, ago time.Duration) map[plan.Key]plan.Failure {
	return map[plan.Key]plan.Failure{{Container: "c", Op: plan.StartContainer}: {N: 1, Reason: reason, Message: "why", At: t0.Add(-ago), Retry: t0.Add(time.Minute)}}
}

// This helper returns a status as kubectl get pods prints it.
func brief(st v1.PodStatus) string {
	out := string(st.Phase)
	if st.Reason != "" {
		out += " " + st.Reason
	}
	for _, list := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for _, c := range list {
			out += " " + c.Name + "="
			switch s := c.State; {
			case s.Running != nil:
				out += "Running"
			case s.Waiting != nil:
				out += s.Waiting.Reason
			case s.Terminated != nil:
				out += s.Terminated.Reason
			}
			if t := c.LastTerminationState.Terminated; t != nil {
				out += "<" + t.Reason
			}
			if c.Ready {
				out += "+"
			}
		}
	}
	for _, c := range st.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			out += " Ready"
		}
	}
	return out
}

func TestMake(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	withInit := newPod("Always")
	withInit.Spec.InitContainers = []v1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}}
	hour := int64(3600)
	short := newPod("Never")
	short.Spec.ActiveDeadlineSeconds = &hour
	two := newPod("Always")
	two.Spec.Containers = append(two.Spec.Containers, v1.Container{Name: "d"})
	gated := newPod("Always")
	gated.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "x"}}
	for _, tt := range []struct {
		name string
		in   plan.Input
		want string
	}{
		{"new", plan.Input{Want: newPod("Always")}, "Pending c=ContainerCreating"},
		{"new with init", plan.Input{Want: withInit, Observed: observedWith()}, "Pending i=PodInitializing s=PodInitializing c=PodInitializing"},
		{"init runs", plan.Input{Want: withInit, Observed: observedWith(running("i", 0))}, "Pending i=Running s=PodInitializing c=PodInitializing"},
		{"sidecar runs", plan.Input{Want: withInit, Observed: observedWith(ended("i", 0, 0), running("s", 0))}, "Pending i=Completed+ s=Running+ c=PodInitializing"},
		{"all run", plan.Input{Want: withInit, Observed: observedWith(ended("i", 0, 0), running("s", 0), running("c", 0))}, "Running i=Completed+ s=Running+ c=Running+ Ready"},
		{"init crashes", plan.Input{Want: withInit, Now: t0, Observed: observedWith(ended("i", 1, 2))}, "Pending i=CrashLoopBackOff<Error s=PodInitializing c=PodInitializing"},
		{"runs", plan.Input{Want: newPod("Always"), Observed: observedWith(running("c", 0))}, "Running c=Running+ Ready"},
		{"one of two", plan.Input{Want: two, Observed: observedWith(running("c", 0))}, "Pending c=Running+ d=ContainerCreating"},
		{"not ready", plan.Input{Want: newPod("Always"), Observed: observedWith(running("c", 0)), Health: map[string]plan.Health{"c": {Started: true}}}, "Running c=Running"},
		{"gate", plan.Input{Want: gated, Observed: observedWith(running("c", 0))}, "Running c=Running+"},
		{"ErrImagePull", plan.Input{Want: newPod("Always"), Now: t0, Observed: observedWith(), Failed: failed(plan.ErrImagePull, 0)}, "Pending c=ErrImagePull"},
		{"ImagePullBackOff", plan.Input{Want: newPod("Always"), Now: t0, Observed: observedWith(), Failed: failed(plan.ErrImagePull, 5*time.Second)}, "Pending c=ImagePullBackOff"},
		{"config error", plan.Input{Want: newPod("Always"), Now: t0, Observed: observedWith(), Failed: failed(plan.CreateContainerConfigError, 0)}, "Pending c=CreateContainerConfigError"},
		{"crash loop", plan.Input{Want: newPod("Always"), Now: t0, Observed: observedWith(ended("c", 1, 1))}, "Running c=CrashLoopBackOff<Error"},
		{"lost with its sandbox, as at a boot", plan.Input{Want: newPod("Always"), Now: t0, Observed: dead(ended("c", 137, 3))}, "Running c=Error"},
		{"restarts at once", plan.Input{Want: newPod("Always"), Now: t0, Observed: observedWith(ended("c", 1, 0))}, "Running c=Error"},
		{"after a restart", plan.Input{Want: newPod("Always"), Now: t0, Observed: observedWith(ended("c", 0, 0), running("c", 1))}, "Running c=Running<Completed+ Ready"},
		{"succeeded", plan.Input{Want: newPod("Never"), Now: t0, Observed: observedWith(ended("c", 0, 0))}, "Succeeded c=Completed"},
		{"failed", plan.Input{Want: newPod("Never"), Now: t0, Observed: observedWith(ended("c", 3, 0))}, "Failed c=Error"},
		{"given up", plan.Input{Want: newPod("OnFailure"), Now: t0, Observed: observedWith(ended("c", 0, 0)), Interrupted: map[string]plan.Interruption{"c": plan.Replaced}}, "Running c=ContainerCreating<Completed"},
		{"given up again", plan.Input{Want: newPod("OnFailure"), Now: t0, Observed: observedWith(ended("c", 0, 1)), Interrupted: map[string]plan.Interruption{"c": plan.Replaced}}, "Running c=CrashLoopBackOff<Completed"},
		{"retries", plan.Input{Want: newPod("OnFailure"), Now: t0, Observed: observedWith(ended("c", 3, 3))}, "Running c=CrashLoopBackOff<Error"},
		{"evicted", plan.Input{Want: newPod("Always"), Now: t0, End: &plan.End{Reason: "Evicted"}, Observed: observedWith(ended("c", 137, 0))}, "Failed Evicted c=Error"},
		{"too long", plan.Input{Want: short, Now: t0, Started: t0.Add(-2 * time.Hour), Observed: observedWith(running("c", 0))}, "Running c=Running+ Ready"},
		{"just in time", plan.Input{Want: short, Now: t0.Add(time.Hour), Started: t0.Add(-time.Minute), Observed: observedWith(ended("c", 0, 0))}, "Succeeded c=Completed"},
		{"deleted", plan.Input{Want: newPod("Always"), Now: t0, Deleting: true, Observed: observedWith(ended("c", 137, 0))}, "Failed c=Error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := brief(Compute(tt.in, v1.PodStatus{}, Host{Runtime: "containerd"}))
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestWaitsForName checks the waiting message of the containers of a pod that waits for the end of an earlier pod with its name.
func TestWaitsForName(t *testing.T) {
	for _, waits := range []bool{true, false} {
		st := Compute(plan.Input{Want: newPod("Always"), Now: t0, Waiting: waits}, v1.PodStatus{}, Host{})
		w := st.ContainerStatuses[0].State.Waiting
		if st.Phase != v1.PodPending || w == nil || w.Reason != plan.ContainerCreating || (w.Message != "") != waits {
			t.Errorf("waiting %v: %+v", waits, st)
		}
	}
}

// TestTooLarge checks that a pod that is too large for the node, and therefore has no containers here, neither succeeds nor becomes ready.
// It is deleted before the node has rejected it, or it waits for another pod with its name.
func TestTooLarge(t *testing.T) {
	large := podtest.New("large")
	large.Spec, large.Annotations = v1.PodSpec{}, map[string]string{keys.TooLarge: ""}
	stopped := observedWith(ended("c", 0, 0))
	for _, tt := range []struct {
		name string
		in   plan.Input
		want string
	}{
		{"new", plan.Input{}, "Pending"},
		{"waits", plan.Input{Waiting: true}, "Pending"},
		{"waits, with a sandbox", plan.Input{Waiting: true, Observed: observedWith()}, "Pending"},
		{"runs, and the database was lost", plan.Input{Observed: observedWith(running("c", 0))}, "Running"},
		{"has run, and the database was lost", plan.Input{Observed: stopped}, "Pending"},
		{"deleted", plan.Input{Deleting: true}, "Failed"},
		{"deleted, with a sandbox", plan.Input{Deleting: true, Observed: dead()}, "Failed"},
		{"deleted after it has run", plan.Input{Deleting: true, Observed: stopped}, "Failed"},
		{"deleted while it runs", plan.Input{Deleting: true, Observed: observedWith(running("c", 0))}, "Running"},
		{"rejected", plan.Input{End: &plan.End{Reason: "PodTooLarge"}}, "Failed PodTooLarge"},
		{"rejected and deleted", plan.Input{End: &plan.End{Reason: "PodTooLarge"}, Deleting: true}, "Failed PodTooLarge"},
		{"a shutdown", plan.Input{ShutdownSince: t0, Now: t0}, "Pending Terminated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Want = large
			if got := brief(Compute(tt.in, v1.PodStatus{}, Host{Runtime: "containerd"})); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestRestartCount checks that a new attempt counts when its container runs or its start has failed, and not while it starts.
func TestRestartCount(t *testing.T) {
	past, next := ended("c", 1, 1), running("c", 4)
	past.Attempt, past.ID = 3, "past"
	starting := next
	starting.State = plan.Created
	first := starting
	first.Attempt = 0
	for name, c := range map[string]struct {
		containers []plan.Container
		failed     map[plan.Key]plan.Failure
		want       int32
	}{
		"no container":         {nil, nil, 0},
		"the first one starts": {[]plan.Container{first}, nil, 0},
		"ended":                {[]plan.Container{past}, nil, 3},
		"the next one starts":  {[]plan.Container{past, starting}, nil, 3},
		"its start failed":     {[]plan.Container{past, starting}, failed("RunContainerError", time.Second), 4},
		"it runs":              {[]plan.Container{past, next}, nil, 4},
	} {
		in := plan.Input{Want: newPod("Always"), Now: t0, Observed: observedWith(c.containers...), Failed: c.failed}
		if got := Compute(in, v1.PodStatus{}, Host{}).ContainerStatuses[0].RestartCount; got != c.want {
			t.Errorf("%s: restart count %d, want %d", name, got, c.want)
		}
	}
}

// TestOrder checks that the statuses have a kubelet's order: by name, and for init containers the order of the spec. The messages of
// conditions list containers in the order of the spec.
func TestOrder(t *testing.T) {
	p := newPod("Always")
	p.Spec.Containers, p.Spec.InitContainers, p.Spec.EphemeralContainers = nil, nil, nil
	always := v1.ContainerRestartPolicyAlways
	var c []plan.Container
	for _, name := range []string{"web", "a", "log", "b"} {
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: "i-" + name, RestartPolicy: &always})
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
		debug := v1.EphemeralContainerCommon{Name: "e-" + name}
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: debug})
		c = append(c, running("i-"+name, 0), running(name, 0), running("e-"+name, 0))
	}
	unready := map[string]plan.Health{"web": {Started: true}, "a": {Started: true}, "i-web": {Started: true}, "i-a": {Started: true}}
	in := plan.Input{Want: p, Now: t0, Observed: observedWith(c...), Health: unready}
	st := Compute(in, v1.PodStatus{}, Host{})
	names := func(list []v1.ContainerStatus) (all []string) {
		for i := range list {
			all = append(all, list[i].Name)
			if s := list[i].State.Running; s == nil {
				t.Errorf("%+v", list[i])
			}
		}
		return all
	}
	got := [][]string{names(st.InitContainerStatuses), names(st.ContainerStatuses), names(st.EphemeralContainerStatuses)}
	want := [][]string{{"i-web", "i-a", "i-log", "i-b"}, {"a", "b", "log", "web"}, {"e-a", "e-b", "e-log", "e-web"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, c := range st.Conditions {
		if c.Type == v1.ContainersReady && c.Message != "containers with unready status: [i-web i-a web a]" {
			t.Errorf("%+v", c)
		}
	}
	if d := cmp.Diff(st, Compute(in, st, Host{})); d != "" {
		t.Error(d)
	}
}

func TestAddressesAndTimes(t *testing.T) {
	host := Host{IPs: []string{"192.168.0.2", "fd00::2"}, Runtime: "containerd"}
	in := plan.Input{Want: newPod("Always"), Now: t0, Started: t0, Observed: observedWith(running("c", 2))}
	st := Compute(in, v1.PodStatus{}, host)
	if st.PodIP != "10.0.0.7" || st.HostIP != "192.168.0.2" || len(st.HostIPs) != 2 || !st.StartTime.Time.Equal(t0) {
		t.Errorf("%+v", st)
	}
	if c := st.ContainerStatuses[0]; c.RestartCount != 2 || c.ContainerID != "containerd://c" || !*c.Started {
		t.Errorf("%+v", c)
	}
	later := in
	later.Started = t0.Add(time.Minute) // another agent's start time
	if again := Compute(later, st, host); !again.StartTime.Time.Equal(t0) {
		t.Errorf("the pod started at %v, then at %v", t0, again.StartTime)
	}
	st.StartTime = &metav1.Time{Time: time.Unix(77, 0)}
	if again := Compute(later, st, host); !again.StartTime.Time.Equal(later.Started) {
		t.Errorf("a start in 1970 counts: %v", again.StartTime)
	}
	in.Now = t0.Add(time.Hour)
	st.Conditions = append(st.Conditions, v1.PodCondition{Type: "example.com/theirs", Status: v1.ConditionTrue})
	again := Compute(in, st, host)
	if again = Compute(in, again, host); cmp.Diff(again.Conditions[1:], st.Conditions[:5]) != "" ||
		again.Conditions[0].Type != "example.com/theirs" {
		t.Errorf("the conditions changed without a reason: %s", cmp.Diff(again.Conditions, st.Conditions))
	}
	in.Observed = observedWith(ended("c", 1, 3))
	for _, c := range Compute(in, st, host).Conditions {
		if changed := c.LastTransitionTime.Time.Equal(in.Now); changed != (c.Type == v1.PodReady || c.Type == v1.ContainersReady) {
			t.Errorf("%s changed: %v", c.Type, changed)
		}
	}
	in.Want.Spec.HostNetwork = true
	if st := Compute(in, st, host); len(st.PodIPs) != 2 || st.PodIP != "192.168.0.2" {
		t.Errorf("host network: %v", st.PodIPs)
	}
}

// TestReadyToStart checks that the condition has the same messages as in a kubelet.
func TestReadyToStart(t *testing.T) {
	for message, s := range map[string]plan.Sandbox{
		"no pod sandbox exists":         {},
		"pod sandbox is not ready":      {ID: "s", IPs: []string{"10.0.0.1"}},
		"pod sandbox has no IP address": {ID: "s", Ready: true},
		"":                              {ID: "s", Ready: true, IPs: []string{"10.0.0.1"}},
	} {
		in := plan.Input{Want: newPod("Always"), Now: t0}
		if s.ID != "" {
			in.Observed.Sandboxes = []plan.Sandbox{s}
		}
		c := Compute(in, v1.PodStatus{}, Host{}).Conditions[0]
		want := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse, Reason: "PodSandboxNotReady", Message: message}
		if message == "" {
			want.Status, want.Reason = v1.ConditionTrue, ""
		}
		if c.Status != want.Status || c.Reason != want.Reason || c.Message != want.Message {
			t.Errorf("%q: %+v", message, c)
		}
	}
}

// TestTrouble checks that the status contains errors that a kubelet reports only as events.
func TestTrouble(t *testing.T) {
	trouble := func(op plan.Op) map[plan.Key]plan.Failure {
		return map[plan.Key]plan.Failure{{Op: op}: {Reason: plan.FailedMount, Message: "no space left on device"}}
	}
	st := Compute(plan.Input{Want: newPod("Always"), Now: t0, Failed: trouble(plan.RunSandbox)}, v1.PodStatus{}, Host{})
	if w := st.ContainerStatuses[0].State.Waiting; w.Reason != plan.ContainerCreating || w.Message != "FailedMount: no space left on device" {
		t.Errorf("%+v", w)
	}
	if c := st.Conditions[0]; c.Type != v1.PodReadyToStartContainers || c.Reason != "PodSandboxNotReady" ||
		c.Message != "no pod sandbox exists" {
		t.Errorf("%+v", c)
	}
	st = Compute(plan.Input{Want: newPod("Always"), Now: t0, Deleting: true, Failed: trouble(plan.RemoveSandbox)}, v1.PodStatus{}, Host{})
	if st.Message != "no space left on device" {
		t.Errorf("%q", st.Message)
	}
}

// TestMessages checks that the size of a status is limited, even with long termination messages.
func TestMessages(t *testing.T) {
	p := newPod("Never")
	var all []plan.Container
	p.Spec.Containers = nil
	for _, name := range strings.Split("abcdefgh", "") {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
		c := ended(name, 1, 0)
		c.Message = strings.Repeat("ä", 2000)
		all = append(all, c)
	}
	st := Compute(plan.Input{Want: p, Now: t0, Observed: observedWith(all...)}, v1.PodStatus{}, Host{})
	total := 0
	for _, c := range st.ContainerStatuses {
		total += len(c.State.Terminated.Message)
		if strings.ToValidUTF8(c.State.Terminated.Message, "?") != c.State.Terminated.Message {
			t.Error("cut within a character")
		}
	}
	if total == 0 || total > maxMessages {
		t.Errorf("%d bytes of messages", total)
	}
}

// TestReadinessGates checks that the message of the Ready condition names each readiness gate that is not true.
func TestReadinessGates(t *testing.T) {
	pod := newPod("Always")
	pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "a"}, {ConditionType: "b"}, {ConditionType: "c"}}
	pod.Status.Conditions = []v1.PodCondition{{Type: "b", Status: v1.ConditionFalse}, {Type: "c", Status: v1.ConditionTrue}}
	ready := func() v1.PodCondition {
		for _, c := range Compute(plan.Input{Want: pod, Now: t0, Observed: observedWith(running("c", 0))}, v1.PodStatus{}, Host{}).Conditions {
			if c.Type == v1.PodReady {
				return c
			}
		}
		return v1.PodCondition{}
	}
	const why = `corresponding condition of pod readiness gate "a" does not exist., the status of pod readiness gate "b" is not "True", but False`
	if c := ready(); c.Status != v1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" || c.Message != why {
		t.Errorf("%+v", c)
	}
	pod.Status.Conditions = append(pod.Status.Conditions[1:], v1.PodCondition{Type: "a", Status: v1.ConditionTrue}, v1.PodCondition{Type: "b", Status: v1.ConditionTrue})
	if c := ready(); c.Status != v1.ConditionTrue {
		t.Errorf("%+v", c)
	}
}
