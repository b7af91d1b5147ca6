package cli

import (
	"bytes"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTable(t *testing.T) {
	var b bytes.Buffer
	var tab table
	tab.addRow("NAME", "STATE")
	tab.addRow("日本", "up")
	tab.addRow("e\u0301te\u0301", "down")
	tab.addRow("evil\x1b[2J\n", "x\ty")
	tab.print(&b)
	tab.addRow("a", "later")
	tab.print(&b)
	want := `NAME        STATE
日本        up
été         down
evil?[2J    x y
a           later
`
	want = string(bytes.ReplaceAll([]byte(want), []byte("été"), []byte("e\u0301te\u0301")))
	if b.String() != want {
		t.Errorf("got\n%s want\n%s", b.String(), want)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 1023: "1023B", 1536: "1.5KiB", 200 << 20: "200MiB", 3 << 40: "3.0TiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}

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
		want       summary
	}{
		"pending":   {want: summary{"0/1", "Pending", "0"}},
		"creating":  {main: []v1.ContainerStatus{{State: waiting("ContainerCreating")}}, want: summary{"0/1", "ContainerCreating", "0"}},
		"running":   {main: []v1.ContainerStatus{{State: running, Ready: true}}, want: summary{"1/1", "Running", "0"}, change: func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }},
		"oom":       {main: []v1.ContainerStatus{{State: ended(137, 0, "OOMKilled")}}, want: summary{"0/1", "OOMKilled", "0"}},
		"exit":      {main: []v1.ContainerStatus{{State: ended(3, 0, "")}}, want: summary{"0/1", "ExitCode:3", "0"}},
		"signal":    {main: []v1.ContainerStatus{{State: ended(0, 9, "")}}, want: summary{"0/1", "Signal:9", "0"}},
		"init":      {init: []v1.ContainerStatus{{State: ended(0, 0, "Completed")}, {State: running}}, want: summary{"0/1", "Init:1/2", "0"}},
		"init fail": {init: []v1.ContainerStatus{{State: ended(2, 0, "Error"), RestartCount: 2}}, want: summary{"0/1", "Init:Error", "2"}},
		"init wait": {init: []v1.ContainerStatus{{State: waiting("CrashLoopBackOff")}}, want: summary{"0/1", "Init:CrashLoopBackOff", "0"}},
		"sidecar": {init: []v1.ContainerStatus{{Name: "i0", State: running, Started: &yes}}, main: []v1.ContainerStatus{{State: running, Ready: true}},
			change: func(p *v1.Pod) { p.Spec.InitContainers[0].RestartPolicy = &always }, want: summary{"1/1", "Pending", "0"}},
		"partly done": {main: []v1.ContainerStatus{{State: ended(0, 0, "Completed")}, {State: running, Ready: true}},
			change: func(p *v1.Pod) { p.Spec.Containers = make([]v1.Container, 2) }, want: summary{"1/2", "NotReady", "0"}},
		"deleted": {main: []v1.ContainerStatus{{State: running, Ready: true}}, change: func(p *v1.Pod) { p.DeletionTimestamp = &deleted },
			want: summary{"1/1", "Terminating", "0"}},
		"refused": {change: func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "OutOfcpu" }, want: summary{"0/1", "OutOfcpu", "0"}},
	} {
		pod := &v1.Pod{Status: v1.PodStatus{InitContainerStatuses: c.init, ContainerStatuses: c.main}}
		pod.Spec.Containers = []v1.Container{{Name: "app"}}
		for i := range c.init {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: []string{"i0", "i1"}[i]})
		}
		if c.change != nil {
			c.change(pod)
		}
		if got := summarize(pod, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestChoose(t *testing.T) {
	var pods []v1.Pod
	for _, n := range [][2]string{{"default", "web-pi"}, {"default", "web-pi-2"}, {"default", "db-pi"}, {"kube-system", "dns-pi"}, {"other", "db-pi"},
		{"po", "own"}} {
		pods = append(pods, v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: n[0], Name: n[1]}})
	}
	for _, c := range []struct{ namespace, name, want string }{
		{"", "web-pi", "default/web-pi"},
		{"", "pod/web-pi-2", "default/web-pi-2"},
		{"", "po/web-pi-2", "default/web-pi-2"},
		{"", "pods/other/db-pi", "other/db-pi"},
		{"", "po/own", "po/own"},
		{"po", "pod/own", "po/own"},
		{"", "pod/", "a pod's name is empty"},
		{"", "d", "default/db-pi"},
		{"", "dns", "kube-system/dns-pi"},
		{"other", "db", "other/db-pi"},
		{"", "other/d", "other/db-pi"},
		{"", "we", `"we" is ambiguous: it matches default/web-pi, default/web-pi-2`},
		{"", "x", `pod "x" not found`},
		{"other", "web-pi", `pod "other/web-pi" not found`},
		{"other", "default/db", "pod default/db is not in namespace other"},
		{"", "", "a pod's name is empty"},
	} {
		pod, err := choosePod(pods, c.namespace, c.name)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = pod.Namespace + "/" + pod.Name
		}
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.namespace, c.name, got, c.want)
		}
	}
}
