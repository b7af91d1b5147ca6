package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/podtest"
)

// TestEnded checks that a pod of the API server that finished before the agent's start stays finished. The status may come from the API
// server or from the node's store. The runtime may or may not still have the pod.
func TestEnded(t *testing.T) {
	pods := []struct {
		uid    types.UID
		source string
		shown  v1.PodStatus  // status at the API server
		stored *v1.PodStatus // status in the node's store
		want   *plan.End
	}{
		{"new", desired.API, v1.PodStatus{}, nil, nil},
		{"runs", desired.API, v1.PodStatus{}, &v1.PodStatus{Phase: v1.PodRunning}, nil},
		{"succeeded", desired.API, v1.PodStatus{}, &v1.PodStatus{Phase: v1.PodSucceeded}, &plan.End{Phase: v1.PodSucceeded}},
		{"too-long", desired.API, v1.PodStatus{}, &v1.PodStatus{Phase: v1.PodFailed, Reason: plan.DeadlineExceeded, Message: "why"},
			&plan.End{Phase: v1.PodFailed, Reason: plan.DeadlineExceeded, Message: "why"}},
		{"shown", desired.API, v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeLost"}, &v1.PodStatus{Phase: v1.PodRunning}, &plan.End{Phase: v1.PodFailed, Reason: "NodeLost"}},
		{"static", desired.File, v1.PodStatus{}, &v1.PodStatus{Phase: v1.PodFailed}, nil},
		{"url", desired.HTTP, v1.PodStatus{}, &v1.PodStatus{Phase: v1.PodSucceeded}, nil},
	}
	w := newWorld(t)
	var running []types.UID
	listed := map[string][]desired.SourcePod{}
	for _, p := range pods {
		pod := podtest.New(string(p.uid))
		pod.Status = p.shown
		listed[p.source] = append(listed[p.source], desired.SourcePod{Pod: pod})
		running = append(running, p.uid)
	}
	for source, all := range listed {
		if err := w.desired.Set(t.Context(), source, all, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		if p.stored != nil {
			if err := w.store.PutStatus(p.uid, p.stored); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, there := range [][]types.UID{running, nil} { // nil: the pods ran with another container runtime
		w.restart(t, there...)
		for _, p := range pods {
			got, ok := w.Get(p.uid)
			if !ok || (p.want != nil || there != nil) && (got.End == nil) != (p.want == nil) || p.want != nil && *got.End != *p.want {
				t.Errorf("%s, %d pods in the runtime: %v %+v, want %+v", p.uid, len(there), ok, got.End, p.want)
			}
		}
	}
}
