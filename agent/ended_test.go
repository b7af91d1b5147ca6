package agent

import (
	"log/slog"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/observe"
	"github.com/islet-edge/islet/agent/plan"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/runtime/fake"
)

// What ended before the agent's start has ended for good if it is the API server's,
// whoever says so. All of them are known to the runtime, so none is refused.
func TestEnded(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "islet.db")
	pods := []struct {
		uid    types.UID
		source string
		shown  v1.PodStatus  // by the API server
		stored *v1.PodStatus // by this node
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
	open := func() *agent {
		s, err := store.Open(t.Context(), path, log)
		if err != nil {
			t.Fatal(err)
		}
		a := &agent{log: log, store: s}
		if a.desired, err = desired.New(desired.Config{Store: s, Poke: func(types.UID) {}, Log: log}); err != nil {
			t.Fatal(err)
		}
		a.pods = newPods(a)
		return a
	}
	runtime := fake.New()
	first := open()
	claims := map[string][]desired.Claim{}
	for _, p := range pods {
		pod := &v1.Pod{Status: p.shown}
		pod.Name, pod.Namespace, pod.UID = string(p.uid), "default", p.uid
		claims[p.source] = append(claims[p.source], desired.Claim{Pod: pod})
		cfg := &api.PodSandboxConfig{Metadata: &api.PodSandboxMetadata{Uid: string(p.uid)}, Labels: map[string]string{"io.kubernetes.pod.uid": string(p.uid)}}
		if _, err := runtime.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg}); err != nil {
			t.Fatal(err)
		}
	}
	for source, all := range claims {
		if err := first.desired.Set(t.Context(), source, all, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		if p.stored != nil {
			if err := first.store.PutStatus(p.uid, p.stored); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := first.store.Close(); err != nil {
		t.Fatal(err)
	}

	a := open()
	defer a.store.Close()
	a.observer = observe.New(observe.Config{Runtime: runtime, Changed: func(types.UID) {}, Log: log})
	if err := a.observer.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.pods.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		got, ok := a.pods.Get(p.uid)
		if !ok || (got.End == nil) != (p.want == nil) || got.End != nil && *got.End != *p.want {
			t.Errorf("%s: %v %+v, want %+v", p.uid, ok, got.End, p.want)
		}
	}
}
