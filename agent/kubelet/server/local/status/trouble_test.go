package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/podtest"
)

func TestTroubles(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }
	waiting := func(reason string) v1.PodStatus {
		return v1.PodStatus{Phase: v1.PodPending, StartTime: ago(time.Second), ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: "why"}}}}}
	}
	grace := int64(30)
	for _, c := range []struct {
		name   string
		pod    v1.Pod
		reason string // "" if there is no problem
		stuck  bool
	}{
		{"runs", v1.Pod{Status: v1.PodStatus{Phase: v1.PodRunning, StartTime: ago(time.Hour)}}, "", false},
		{"done", v1.Pod{Status: v1.PodStatus{Phase: v1.PodSucceeded}}, "", false},
		{"failed", v1.Pod{Status: v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}}, "Evicted", false},
		{"failed without a reason", v1.Pod{Status: v1.PodStatus{Phase: v1.PodFailed}}, "Failed", false},
		{"starts", v1.Pod{Status: waiting("ContainerCreating")}, "", false},
		{"crashes", v1.Pod{Status: waiting("CrashLoopBackOff")}, "CrashLoopBackOff", true},
		{"no image", v1.Pod{Status: waiting("ErrImageNeverPull")}, "ErrImageNeverPull", true},
		{"a debugging container without an image", v1.Pod{Status: v1.PodStatus{Phase: v1.PodRunning, StartTime: ago(time.Hour),
			EphemeralContainerStatuses: waiting("ImagePullBackOff").ContainerStatuses}}, "", false},
		{"pending for long", v1.Pod{Status: v1.PodStatus{Phase: v1.PodPending, StartTime: ago(time.Hour)}}, "Pending", true},
		{"pending", v1.Pod{Status: v1.PodStatus{Phase: v1.PodPending, StartTime: ago(time.Minute)}}, "", false},
		{"ends", v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ago(40 * time.Second), DeletionGracePeriodSeconds: &grace}}, "", false},
		{"does not end", v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ago(2 * time.Minute), DeletionGracePeriodSeconds: &grace}}, "Terminating", true},
		{"ends, and has crashed", v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ago(time.Second)}, Status: waiting("CrashLoopBackOff")}, "", false},
	} {
		stuck, list := findTroubles([]*v1.Pod{&c.pod}, nil, now)
		if len(list) != map[bool]int{true: 1}[c.reason != ""] || len(list) == 1 && list[0].Reason != c.reason || (stuck == 1) != c.stuck {
			t.Errorf("%s: %d stuck, %+v", c.name, stuck, list)
		}
	}
	many := make([]*v1.Pod, 3*maxTroubles)
	for i := range many {
		many[i] = &v1.Pod{Status: waiting("CrashLoopBackOff")}
	}
	if stuck, list := findTroubles(many, nil, now); stuck != len(many) || len(list) != len(many) {
		t.Errorf("%d of %d stuck, %d named", stuck, len(many), len(list))
	}
}

// TestTroubleOfEachContainer checks that each container that cannot start is listed as a separate trouble. The trouble contains the exit
// code and a command that shows more. A host port in use is also a trouble, even if its pod is not stuck.
func TestTroubleOfEachContainer(t *testing.T) {
	now := time.Now()
	waiting := func(name, reason string, last *v1.ContainerStateTerminated) v1.ContainerStatus {
		return v1.ContainerStatus{Name: name, RestartCount: 4, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: "why"}},
			LastTerminationState: v1.ContainerState{Terminated: last}}
	}
	p := podtest.New("web", podtest.Namespace("lab"),
		podtest.Containers(v1.Container{Name: "app"}, v1.Container{Name: "side"}, v1.Container{Name: "well"}))
	p.Status = v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
		waiting("app", "CrashLoopBackOff", &v1.ContainerStateTerminated{ExitCode: 3, ContainerID: "c"}), waiting("side", "ErrImageNeverPull", nil),
		{Name: "well", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
	}}
	q := podtest.New("port", podtest.UID("q"), podtest.Phase(v1.PodRunning))
	stuck, list := findTroubles([]*v1.Pod{p, q}, map[types.UID][]string{"q": {"host port 80/TCP is taken"}}, now)
	if stuck != 1 || len(list) != 3 {
		t.Fatalf("%d stuck, %+v", stuck, list)
	}
	port, app, side := list[0], list[1], list[2]
	if port.Name != "port" || port.Reason != "HostPortConflict" || port.Message != "host port 80/TCP is taken" || port.Command == "" {
		t.Errorf("%+v", port)
	}
	if app.Container != "app" || app.ExitCode == nil || *app.ExitCode != 3 || app.Command != "islet logs lab/web app" ||
		app.Message != "exit code 3 (Error), 4 restarts, the next start is delayed" {
		t.Errorf("%+v", app)
	}
	if side.Container != "side" || side.Reason != "ErrImageNeverPull" || side.ExitCode != nil || side.Command != "islet describe lab/web" {
		t.Errorf("%+v", side)
	}
	p.DeletionTimestamp, q.DeletionTimestamp = &metav1.Time{Time: now}, &metav1.Time{Time: now}
	if _, list := findTroubles([]*v1.Pod{p, q}, map[types.UID][]string{"q": {"x"}}, now); len(list) != 0 {
		t.Errorf("pods that end: %+v", list)
	}
}
