package pods

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/keys"
)

// sentStatuses is an Outbox that records the phases of sent statuses.
type sentStatuses map[types.UID]v1.PodPhase

func (s sentStatuses) Put(p *v1.Pod, st *v1.PodStatus)       { s[p.UID] = st.Phase }
func (s sentStatuses) Finish(context.Context, *v1.Pod) error { return nil }
func (s sentStatuses) Has(types.UID) bool                    { return true }

// TestEndedPodTooLarge checks that the status of a pod that has ended, and that is now too large for the node, stays as it is at the API
// server, also after a restart and when the pod is deleted. A pod that the node rejects is reported.
func TestEndedPodTooLarge(t *testing.T) {
	w, sent := newWorld(t), sentStatuses{}
	w.Connect(sent, nil)
	large := func(name string, st v1.PodStatus) *v1.Pod {
		p := aPod(name, "1", 0)
		p.Spec, p.Status = v1.PodSpec{}, st
		p.Annotations = map[string]string{keys.TooLarge: "", keys.ConfigSource: keys.SourceAPI}
		return p
	}
	statuses := map[types.UID]v1.PodStatus{
		"succeeded": {Phase: v1.PodSucceeded, QOSClass: v1.PodQOSGuaranteed, PodIP: "10.0.0.7",
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 7}}}}},
		"reduced": {Phase: v1.PodFailed, Reason: "why", QOSClass: v1.PodQOSBurstable},
	}
	rejected := large("rejected", v1.PodStatus{Phase: v1.PodPending})
	pods := map[types.UID]*v1.Pod{"rejected": rejected}
	w.setPods(t, desired.API, rejected)
	for uid, s := range statuses {
		pods[uid] = large(string(uid), s)
	}
	w.setPods(t, desired.API, pods["rejected"], pods["succeeded"], pods["reduced"])
	refresh := func(deleting bool) {
		t.Helper()
		for uid := range pods {
			d, _ := w.Get(uid)
			if uid == "rejected" {
				w.admit(t, uid, "PodTooLarge")
				d, _ = w.Get(uid)
			}
			w.inputs[uid] = plan.Input{UID: uid, Want: d.Pod, End: d.End, Now: time.Now(), Deleting: deleting}
			w.refreshStatus(uid)
		}
		for uid, want := range statuses {
			if got := w.Status(uid); !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s: got %+v", uid, got)
			}
		}
		if len(sent) != 1 || sent["rejected"] != v1.PodFailed {
			t.Errorf("sent %v", sent)
		}
	}
	refresh(false)
	w.restart(t)
	clear(sent)
	w.Connect(sent, nil)
	if err := w.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	refresh(false)
	refresh(true)
	full := v1.PodStatus{Phase: v1.PodFailed, Reason: "why", Message: strings.Repeat("x", 5000), QOSClass: v1.PodQOSBurstable,
		ContainerStatuses: statuses["succeeded"].ContainerStatuses}
	p := aPod("reduced", "1", 0)
	p.Annotations, p.Status = map[string]string{keys.ConfigSource: keys.SourceAPI}, full
	w.setPods(t, desired.API, pods["rejected"], pods["succeeded"], p) // the next event of the pod; alone, the pod is not too large
	d, _ := w.Get("reduced")
	w.inputs["reduced"] = plan.Input{UID: "reduced", Want: d.Pod, End: d.End, Now: time.Now()}
	w.refreshStatus("reduced")
	if s := w.Status("reduced"); s.Message != full.Message || !equality.Semantic.DeepEqual(s.ContainerStatuses, full.ContainerStatuses) {
		t.Errorf("the result is gone: %d bytes, %v", len(s.Message), s.ContainerStatuses)
	}
	w.restart(t) // the agent has stored the whole status
	if err := w.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if s := w.Status("reduced"); !equality.Semantic.DeepEqual(s.ContainerStatuses, full.ContainerStatuses) {
		t.Errorf("the result is gone after a restart: %v", s.ContainerStatuses)
	}
}
