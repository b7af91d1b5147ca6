package pods

import (
	"context"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/podtest"
)

// server is an Outbox. The map contains the pods that the API server does not have.
type server map[types.UID]bool

func (server) Put(*v1.Pod, *v1.PodStatus)            {}
func (server) Finish(context.Context, *v1.Pod) error { return nil }
func (s server) Has(uid types.UID) bool              { return !s[uid] }

// TestWorking checks that each pod is counted once. The labels say what the node does with the pod and which source still wants it.
func TestWorking(t *testing.T) {
	w, lacks := newWorld(t), server{}
	w.Connect(lacks, nil)
	set := func(source string, names ...string) {
		t.Helper()
		var listed []desired.SourcePod
		for _, name := range names {
			pod := podtest.New(name, podtest.UID(name))
			listed = append(listed, desired.SourcePod{Pod: pod})
		}
		if err := w.desired.Set(t.Context(), source, listed, nil); err != nil {
			t.Fatal(err)
		}
	}
	phase := func(uid types.UID, p v1.PodPhase) {
		w.Pods.mu.Lock()
		defer w.Pods.mu.Unlock()
		w.states[uid] = state{status: v1.PodStatus{Phase: p}}
	}
	type counts = map[[3]string]int
	want := func(what string, want counts, inRuntime ...types.UID) {
		t.Helper()
		w.c.InRuntime = func() []types.UID { return inRuntime }
		if got := w.Working(); !maps.Equal(got, want) {
			t.Errorf("%s: %v, not %v", what, got, want)
		}
	}
	want("nothing", counts{})
	set(desired.File, "f1", "f2")
	set(desired.API, "a1", "a2", "a3")
	phase("a3", v1.PodSucceeded)
	phase("a1", v1.PodRunning)
	want("wanted", counts{{"sync", "desired", "true"}: 2, {"sync", "desired", ""}: 2, {"terminated", "desired", ""}: 1}, "f1", "a1")
	w.Pods.mu.Lock()
	w.verdicts["a1"] = verdict{end: &plan.End{Reason: plan.Evicted}, ending: true}
	w.Pods.mu.Unlock()
	want("evicted", counts{{"sync", "desired", "true"}: 2, {"sync", "desired", ""}: 1, {"terminating", "desired", ""}: 1, {"terminated", "desired", ""}: 1})
	phase("a1", v1.PodFailed)
	want("ended", counts{{"sync", "desired", "true"}: 2, {"sync", "desired", ""}: 1, {"terminated", "desired", ""}: 2})
	set(desired.File, "f1")
	set(desired.API, "a1")
	want("deleted", counts{{"sync", "desired", "true"}: 1, {"terminating", "orphan", "true"}: 1, {"terminated", "desired", ""}: 2,
		{"terminating", "desired", ""}: 1}, "f1", "f2", "a1", "a2", "a3")
	lacks["a2"], lacks["a1"] = true, true // a1 is still desired
	want("deleted by force", counts{{"sync", "desired", "true"}: 1, {"terminating", "orphan", "true"}: 1, {"terminated", "desired", ""}: 2,
		{"terminating", "orphan", ""}: 1})
	phase("f2", v1.PodFailed)
	want("remains", counts{{"sync", "desired", "true"}: 1, {"terminated", "orphan", "true"}: 1, {"terminated", "desired", ""}: 2,
		{"terminating", "orphan", ""}: 1, {"terminating", "runtime_only", "unknown"}: 2}, "x", "y", "f1")
}
