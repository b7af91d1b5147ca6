package desired

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestHold checks that a pod is kept while Hold is set, although the source no longer delivers the pod. The pod ends when an agent starts
// without Hold.
func TestHold(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	set := func(source string, specs ...string) {
		t.Helper()
		if err := w.Set(ctx, source, sourcePods(specs...), nil); err != nil {
			t.Fatal(err)
		}
	}
	set(File, "a/1", "b/2")
	set(API, "c/3", "d/4")
	w.hold = true
	w.restart()
	set(File, "a/1")
	set(API)
	if held := w.HeldPods(); w.show() != "1, 2, 3, 4" || len(held) != 3 || slices.Contains(held, "1") {
		t.Errorf("%s, held are %v", w.show(), held)
	}
	ending := SourcePod{Pod: pod("c/3"), Ending: &Ending{Grace: time.Second}} // a user deleted the pod
	if err := w.Update(ctx, API, []SourcePod{ending}, []RemovedPod{{UID: "4"}}); err != nil {
		t.Fatal(err)
	}
	if held := w.HeldPods(); w.show() != "1, 2, 3 deleting, 4 deleting" || !slices.Equal(held, []types.UID{"2"}) {
		t.Errorf("%s, held are %v", w.show(), held)
	}
	set(File, "a/1", "b/2") // the source delivers the pod again
	if held := w.HeldPods(); len(held) > 0 {
		t.Errorf("held are %v", held)
	}
	set(File, "a/1")
	w.hold = false
	w.restart()
	set(File, "a/1")
	if w.show() != "1, 2 deleting, 3 deleting, 4 deleting" || len(w.HeldPods()) > 0 {
		t.Errorf("%s, held are %v", w.show(), w.HeldPods())
	}
}

// TestHoldReplaced checks that a held pod starts after its predecessor has ended. The predecessor is another pod with the same name, or an
// earlier instance of the held pod. The held pod ends when an agent starts without Hold.
func TestHoldReplaced(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	for _, set := range [][]SourcePod{sourcePods("a/a1", "b/b1"), sourcePods("a/a2"), sourcePods("a/a2", "b/b1")} {
		if err := w.Set(ctx, File, set, nil); err != nil {
			t.Fatal(err)
		}
	}
	w.poked = nil
	w.hold = true
	w.restart()
	w.want("dropped", w.Set(ctx, File, nil, nil), "a1 deleting, a2 waiting a1, b1 deleting")
	w.want("the former one is gone", w.Forget(ctx, "a1"), "a2, b1 deleting", "a1", "a2")
	w.want("the former life is over", w.Forget(ctx, "b1"), "a2, b1", "b1")
	held := w.HeldPods()
	slices.Sort(held)
	if !slices.Equal(held, []types.UID{"a2", "b1"}) {
		t.Errorf("held are %v", held)
	}
	w.hold = false
	w.restart()
	w.want("not held", w.Set(ctx, File, nil, nil), "a2 deleting, b1 deleting", "a2", "b1")
}
