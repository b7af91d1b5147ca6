package describe

import (
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/api"
)

// TestFailedHooks checks that failedHooks returns the failed postStart hooks in the order of the containers' names, and no other
// failure.
func TestFailedHooks(t *testing.T) {
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	got := failedHooks(map[plan.Key]plan.Failure{
		{Op: plan.PostStart, Container: "web"}:     {At: at, Message: "exit code 2"},
		{Op: plan.PostStart, Container: "log"}:     {At: at.Add(time.Second), Message: "timeout"},
		{Op: plan.StartContainer, Container: "db"}: {At: at, Message: "no such image"},
	})
	want := []api.FailedHook{{Container: "log", At: at.Add(time.Second), Message: "timeout"}, {Container: "web", At: at, Message: "exit code 2"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("failedHooks returns %+v, want %+v", got, want)
	}
	if got := failedHooks(nil); got != nil {
		t.Errorf("without failures, failedHooks returns %+v", got)
	}
}

// TestEventsOf checks that eventsOf returns the container and the pod of an event, and no pod for an event of the Node.
func TestEventsOf(t *testing.T) {
	first, last := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC), time.Date(2026, 11, 27, 12, 5, 0, 0, time.UTC)
	event := func(kind, name, path string) v1.Event {
		return v1.Event{InvolvedObject: v1.ObjectReference{Kind: kind, Namespace: "edge", Name: name, FieldPath: path},
			Type: "Warning", Reason: "BackOff", Message: "m", Count: 3,
			FirstTimestamp: metav1.NewTime(first), LastTimestamp: metav1.NewTime(last)}
	}
	want := api.Event{Namespace: "edge", Type: "Warning", Reason: "BackOff", Message: "m", Count: 3, First: first, Last: last}
	for _, tt := range []struct {
		name           string
		event          v1.Event
		pod, container string
	}{
		{"container", event("Pod", "web", "spec.containers{main}"), "web", "main"},
		{"init container", event("Pod", "web", "spec.initContainers{setup}"), "web", "setup"},
		{"pod", event("Pod", "web", ""), "web", ""},
		{"node", event("Node", "board", ""), "", ""},
	} {
		want.Pod, want.Container = tt.pod, tt.container
		if got := eventsOf([]v1.Event{tt.event}); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("%s: eventsOf returns %+v, want %+v", tt.name, got, want)
		}
	}
}
