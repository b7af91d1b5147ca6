package podstate_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/cli/pods/podstate"
)

// TestSummarize checks that the column STATUS contains the same words as the column of kubectl get pods.
func TestSummarize(t *testing.T) {
	now := time.Now()
	waiting := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	ended := func(code, signal int32, reason string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Signal: signal, Reason: reason}}
	}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	always := v1.ContainerRestartPolicyAlways
	deleted := metav1.NewTime(now)
	yes := true
	for name, c := range map[string]struct {
		init, main []v1.ContainerStatus
		change     func(*v1.Pod)
		want       podstate.Summary
	}{
		"pending":  {want: podstate.Summary{"0/1", "Pending", "0"}},
		"creating": {main: []v1.ContainerStatus{{State: waiting("ContainerCreating")}}, want: podstate.Summary{"0/1", "ContainerCreating", "0"}},
		"running": {main: []v1.ContainerStatus{{State: running, Ready: true}}, want: podstate.Summary{"1/1", "Running", "0"},
			change: func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }},
		"oom":       {main: []v1.ContainerStatus{{State: ended(137, 0, "OOMKilled")}}, want: podstate.Summary{"0/1", "OOMKilled", "0"}},
		"exit":      {main: []v1.ContainerStatus{{State: ended(3, 0, "")}}, want: podstate.Summary{"0/1", "ExitCode:3", "0"}},
		"signal":    {main: []v1.ContainerStatus{{State: ended(0, 9, "")}}, want: podstate.Summary{"0/1", "Signal:9", "0"}},
		"init":      {init: []v1.ContainerStatus{{State: ended(0, 0, "Completed")}, {State: running}}, want: podstate.Summary{"0/1", "Init:1/2", "0"}},
		"init fail": {init: []v1.ContainerStatus{{State: ended(2, 0, "Error"), RestartCount: 2}}, want: podstate.Summary{"0/1", "Init:Error", "2"}},
		"init wait": {init: []v1.ContainerStatus{{State: waiting("CrashLoopBackOff")}}, want: podstate.Summary{"0/1", "Init:CrashLoopBackOff", "0"}},
		"sidecar": {init: []v1.ContainerStatus{{Name: "i0", State: running, Started: &yes}}, main: []v1.ContainerStatus{{State: running, Ready: true}},
			change: func(p *v1.Pod) { p.Spec.InitContainers[0].RestartPolicy = &always }, want: podstate.Summary{"1/1", "Pending", "0"}},
		"partly done": {main: []v1.ContainerStatus{{State: ended(0, 0, "Completed")}, {State: running, Ready: true}},
			change: func(p *v1.Pod) { p.Spec.Containers = make([]v1.Container, 2) }, want: podstate.Summary{"1/2", "NotReady", "0"}},
		"deleted": {main: []v1.ContainerStatus{{State: running, Ready: true}}, change: func(p *v1.Pod) { p.DeletionTimestamp = &deleted },
			want: podstate.Summary{"1/1", "Terminating", "0"}},
		"refused": {change: func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "OutOfcpu" }, want: podstate.Summary{"0/1", "OutOfcpu", "0"}},
	} {
		pod := &v1.Pod{Status: v1.PodStatus{InitContainerStatuses: c.init, ContainerStatuses: c.main}}
		pod.Spec.Containers = []v1.Container{{Name: "app"}}
		for i := range c.init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: []string{"i0", "i1"}[i]})
		}
		if c.change != nil {
			c.change(pod)
		}
		if got := podstate.Summarize(pod, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
