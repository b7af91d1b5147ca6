package server

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		{"pending for long", v1.Pod{Status: v1.PodStatus{Phase: v1.PodPending, StartTime: ago(time.Hour)}}, "Pending", true},
		{"pending", v1.Pod{Status: v1.PodStatus{Phase: v1.PodPending, StartTime: ago(time.Minute)}}, "", false},
		{"ends", v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ago(40 * time.Second), DeletionGracePeriodSeconds: &grace}}, "", false},
		{"does not end", v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ago(2 * time.Minute), DeletionGracePeriodSeconds: &grace}}, "Terminating", true},
		{"ends, and has crashed", v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ago(time.Second)}, Status: waiting("CrashLoopBackOff")}, "", false},
	} {
		stuck, list := findTroubles([]*v1.Pod{&c.pod}, now)
		if len(list) != map[bool]int{true: 1}[c.reason != ""] || len(list) == 1 && list[0].Reason != c.reason || (stuck == 1) != c.stuck {
			t.Errorf("%s: %d stuck, %+v", c.name, stuck, list)
		}
	}
	many := make([]*v1.Pod, 3*maxTroubles)
	for i := range many {
		many[i] = &v1.Pod{Status: waiting("CrashLoopBackOff")}
	}
	if stuck, list := findTroubles(many, now); stuck != len(many) || len(list) != maxTroubles {
		t.Errorf("%d of %d stuck, %d named", stuck, len(many), len(list))
	}
}
