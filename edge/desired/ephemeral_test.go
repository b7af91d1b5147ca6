package desired

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestAddEphemeral checks that an ephemeral container survives reports of the pod's source and a restart of the agent, and ends with the
// pod. Pods of the API server, pods that end and unknown pods are rejected.
func TestAddEphemeral(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	report := func() {
		t.Helper()
		if err := errors.Join(w.Set(ctx, File, sourcePods("web/a"), nil), w.Set(ctx, API, sourcePods("api/b"), nil)); err != nil {
			t.Fatal(err)
		}
	}
	add := func(p *v1.Pod) (*v1.Pod, error) {
		p = p.DeepCopy()
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{})
		return p, nil
	}
	count := func(want int) {
		t.Helper()
		p, _ := w.Get("a")
		if got := len(p.Pod.Spec.EphemeralContainers); got != want {
			t.Errorf("%d ephemeral containers, want %d", got, want)
		}
	}
	report()
	w.poked = nil
	if err := w.AddEphemeral(ctx, "a", add); err != nil || len(w.poked) != 1 {
		t.Errorf("%v, poked %v", err, w.poked)
	}
	report()
	count(1)
	w.restart()
	count(1)
	report()
	if err := w.AddEphemeral(ctx, "a", add); err != nil {
		t.Error(err)
	}
	count(2)
	if err := w.AddEphemeral(ctx, "b", add); !errors.Is(err, ErrForeign) {
		t.Errorf("a pod of the API server: %v", err)
	}
	if err := w.AddEphemeral(ctx, "none", add); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown pod: %v", err)
	}
	bad := errors.New("bad")
	if err := w.AddEphemeral(ctx, "a", func(*v1.Pod) (*v1.Pod, error) { return nil, bad }); !errors.Is(err, bad) {
		t.Error(err)
	}
	if err := w.Set(ctx, File, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.AddEphemeral(ctx, "a", add); !errors.Is(err, ErrEnding) {
		t.Errorf("a pod that ends: %v", err)
	}
	report()
	if err := w.Forget(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	count(0)
}
