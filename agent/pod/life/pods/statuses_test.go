package pods

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// TestStatusOfWaitingPod checks that a pod of the API server has a status at the server while it waits for the end of an earlier pod with
// its name. A static pod has none, because its mirror pod is still that of the earlier pod.
func TestStatusOfWaitingPod(t *testing.T) {
	for source, want := range map[string]v1.PodPhase{desired.API: v1.PodPending, desired.Local: ""} {
		w, sent := newWorld(t), sentStatuses{}
		w.Connect(sent, nil)
		former, next := aPod("a", "1", 0), aPod("a", "1", 0)
		next.UID = "next"
		if source == desired.API {
			w.setPods(t, source, former)
			w.setPods(t, source, next)
		} else if err := w.desired.Apply(t.Context(), []*v1.Pod{former}); err != nil {
			t.Fatal(err)
		} else if err := w.desired.Apply(t.Context(), []*v1.Pod{next}); err != nil {
			t.Fatal(err)
		}
		if d, _ := w.Get(next.UID); d.Predecessor != former.UID {
			t.Fatalf("%s: the pod waits for %q", source, d.Predecessor)
		}
		w.inputs[next.UID] = plan.Input{UID: next.UID, Want: next, Waiting: true, Now: time.Now()}
		w.refreshStatus(next.UID)
		if sent[next.UID] != want {
			t.Errorf("%s: sent %q, not %q", source, sent[next.UID], want)
		}
	}
}

// TestInputOfAnotherLife checks that the result of a worker's last round is ignored after its pod was deleted. This also applies if the pod
// was created again with the same UID.
func TestInputOfAnotherLife(t *testing.T) {
	w := newWorld(t)
	p := aPod("a", "1", 0)
	w.setPods(t, desired.File, p)
	w.admit(t, "a", "admitted")
	ended := plan.Input{UID: "a", Want: p, Admitted: true, Now: time.Now(), Observed: plan.Observed{
		Containers: []plan.Container{{ID: "c1", Name: "c", State: plan.Exited}},
	}}
	w.inputs["a"] = ended
	w.refreshStatus("a")
	if s := w.Status("a"); len(s.ContainerStatuses) != 1 {
		t.Fatalf("%+v", s)
	}

	// The pod is deleted, created again and forgotten, so its next life begins.
	w.setPods(t, desired.File)
	w.setPods(t, desired.File, p)
	if err := w.Drop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if d, ok := w.desired.Get("a"); !ok || d.Lives != 1 {
		t.Fatalf("lives %d, wanted %v", d.Lives, ok)
	}
	w.refreshStatus("a")
	if s := w.Status("a"); s.Phase != "" || len(s.ContainerStatuses) > 0 {
		t.Errorf("the status of its former life: %+v", s)
	}
	again := ended
	again.Lives, again.Observed = 1, plan.Observed{Sandboxes: []plan.Sandbox{{ID: "s", Ready: true}}}
	w.inputs["a"] = again
	w.refreshStatus("a")
	if s := w.Status("a"); s.Phase != v1.PodPending {
		t.Errorf("the status of this life: %+v", s)
	}

	// The pod is deleted and not created again.
	w.setPods(t, desired.File)
	if err := w.Drop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.refreshStatus("a")
	if _, shown := w.states["a"]; shown {
		t.Error("a pod that is not wanted has a status")
	}
}

// TestSameVersionSamePointer checks that the same version of a pod is always the same object. Workers compare versions by pointer, and so
// do the results of resizes.
func TestSameVersionSamePointer(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.File, aPod("a", "1", 0))
	w.admit(t, "a", "admitted")
	first, _ := w.Get("a")
	w.NodeChanged()
	if second, _ := w.Get("a"); second.Pod != first.Pod {
		t.Error("another object, although the pod has not changed")
	}
	changed := aPod("a", "1", 0)
	changed.Labels = map[string]string{"of": "another version"}
	w.setPods(t, desired.File, changed)
	if third, _ := w.Get("a"); third.Pod == first.Pod || third.Pod.Labels["of"] == "" {
		t.Error("the same object, although the pod has changed")
	}
}

// TestStoredStart checks that a worker gets the start time of a pod from the stored status, also after a restart of the agent. In
// another life of the pod, the stored status may be that of the earlier one.
func TestStoredStart(t *testing.T) {
	w, p, began := newWorld(t), aPod("a", "1", 0), time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	start := func() time.Time {
		d, ok := w.Get("a")
		if !ok || d.Started == nil {
			return time.Time{}
		}
		return d.Started.Time
	}
	w.setPods(t, desired.File, p)
	w.admit(t, "a", "admitted")
	if got := start(); !got.IsZero() {
		t.Errorf("before the first status: %s", got)
	}
	w.inputs["a"] = plan.Input{UID: "a", Want: p, Admitted: true, Started: began, Now: began.Add(time.Minute)}
	w.refreshStatus("a")
	w.restart(t)
	w.setPods(t, desired.File, p)
	if got := start(); !got.Equal(began) {
		t.Errorf("after a restart: %s", got)
	}
	w.setPods(t, desired.File)
	w.setPods(t, desired.File, p)
	if err := w.Drop(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.restart(t)
	w.setPods(t, desired.File, p)
	if got := start(); !got.IsZero() {
		t.Errorf("in the next life: %s", got)
	}
}
