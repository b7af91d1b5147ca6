package pods

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// inspect makes the next round of a pod's worker observe a running container.
func (w *world) inspect(uid types.UID) {
	got, _ := w.Get(uid)
	w.mu.Lock()
	w.inputs[got.Pod.UID] = plan.Input{UID: got.Pod.UID, Want: got.Pod, Admitted: true, Now: time.Now(), Observed: plan.Observed{
		Sandboxes:  []plan.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
		Containers: []plan.Container{{ID: "1", Name: "c", SandboxID: "s", State: plan.Running}},
	}, Health: map[string]plan.Health{"1": {Started: true, Ready: true}}}
	w.mu.Unlock()
	w.refreshStatus(got.Pod.UID)
}

func isReady(pod *v1.Pod) v1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status
		}
	}
	return v1.ConditionUnknown
}

// TestNewer checks that ChangedSince returns each change of a pod once, and nothing else. A change of labels counts too.
func TestNewer(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.File, aPod("a", "1", 0), aPod("b", "1", 0))
	w.admit(t, "a", "admitted")
	w.admit(t, "b", "admitted")
	all, version := w.ChangedSince(0)
	if len(all) != 2 || all[0].Status.Phase != v1.PodPending {
		t.Fatalf("at first %+v", all)
	}
	expect := func(what string, want ...string) {
		t.Helper()
		var changed []*v1.Pod
		changed, version = w.ChangedSince(version)
		if len(changed) != len(want) || len(want) == 1 && string(changed[0].UID) != want[0] {
			t.Errorf("%s: %d pods have changed, not %q", what, len(changed), want)
		}
	}
	expect("nothing")
	changed := w.Changed()
	w.inspect("a")
	select {
	case <-changed:
	default:
		t.Error("the watchers are not woken by a status")
	}
	expect("a runs", "a")
	w.refreshStatus("a")
	expect("another round without a change")

	labelled := aPod("a", "1", 0)
	labelled.Labels = map[string]string{"x": "y"}
	w.setPods(t, desired.File, labelled, aPod("b", "1", 0))
	changed = w.Changed()
	w.inspect("a")
	select {
	case <-changed:
	default:
		t.Error("the watchers are not woken by a label")
	}
	expect("a has a label", "a")
	if p := w.Find("a"); p == nil || p.Labels["x"] != "y" || p.Status.Phase != v1.PodRunning {
		t.Errorf("pod %+v", p)
	}
	if p := w.Find("none"); p != nil {
		t.Errorf("an unknown pod: %+v", p)
	}
}

// TestUnverifiedIsNotReady checks that a pod is not ready after a restart of the agent until its containers have been inspected. The stored
// status says that the pod is ready, but it is not used.
func TestUnverifiedIsNotReady(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.File, aPod("a", "1", 0))
	w.admit(t, "a", "admitted")
	w.inspect("a")
	if got := isReady(w.Find("a")); got != v1.ConditionTrue {
		t.Fatalf("the pod is not ready: %s", got)
	}
	w.restart(t, "a")
	all, version := w.ChangedSince(0)
	if len(all) != 1 || isReady(all[0]) != v1.ConditionFalse || isReady(w.Find("a")) != v1.ConditionFalse {
		t.Errorf("after the restart: %+v", all)
	}
	if listed := w.List(); isReady(listed[0]) != v1.ConditionTrue {
		t.Errorf("other readers lose the stored status: %+v", listed[0].Status)
	}
	w.inspect("a")
	if changed, _ := w.ChangedSince(version); len(changed) != 1 || isReady(changed[0]) != v1.ConditionTrue {
		t.Errorf("after its first round: %+v", changed)
	}
}

// TestComplete checks that the list of pods is complete when the stored pods are loaded and each source has pods. A source has pods when it
// has listed them, or when the store contains pods of this source.
func TestComplete(t *testing.T) {
	w := newWorld(t)
	if w.Complete() {
		t.Error("complete before a source has listed its pods")
	}
	w.setPods(t, desired.File, aPod("a", "1", 0))
	if w.Complete() {
		t.Error("complete without the pods of the API server")
	}
	w.setPods(t, desired.API, aPod("b", "1", 0))
	if !w.Complete() {
		t.Error("not complete, although all sources have listed their pods")
	}
	w.restart(t)
	if !w.Complete() {
		t.Error("not complete with the stored pods of both sources")
	}
	fresh := New(w.c)
	if fresh.Complete() {
		t.Error("complete before the runtime was listed")
	}
}
