package desired

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
)

func TestRebuild(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	recovered := []Recovered{
		{Source: Local, Pod: pod("l/l1")}, {Source: File, Pod: pod("a/a1")}, {Source: File, Pod: pod("b/b1")},
		{Source: Local, Pod: pod("e/e1"), Deleting: true}, {Source: File, Pod: pod("a/a2")},
	}
	w.want("adopt", w.Adopt(ctx, recovered), "a1 waiting a2, a2 deleting, b1, e1 deleting, l1", "a1", "a2", "b1", "e1", "l1")
	w.want("adopt again", w.Adopt(ctx, recovered), "a1 waiting a2, a2 deleting, b1, e1 deleting, l1")
	if w.HasReported(File) {
		t.Error("the running pod differs from the source's pod")
	}
	w.want("unsure", w.Set(ctx, File, sourcePods("a/a1"), []Problem{{Origin: "/manifests/b1", Message: "bad"}}),
		"a1 waiting a2, a2 deleting, b1, e1 deleting, l1", "a1")
	w.want("sure", w.Set(ctx, File, sourcePods("a/a1"), nil), "a1 waiting a2, a2 deleting, b1 deleting, e1 deleting, l1", "b1")
}

// TestOldPriority checks that a static pod without a stored priority has the priority of its class after the start. An older version
// stored the pod, and no source has delivered its pods yet. A pod of the API server is not changed.
func TestOldPriority(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	critical := func(spec, source string) *v1.Pod {
		p := pod(spec)
		p.Spec.PriorityClassName, p.Annotations = "system-node-critical", map[string]string{keys.ConfigSource: source}
		return p
	}
	want := map[types.UID]bool{"l1": true, "f1": true, "h1": true, "r1": true, "a1": false, "r2": false}
	old := []store.Pod{
		{Seq: 1, Source: Local, Pod: critical("l/l1", Local)}, {Seq: 2, Source: File, Pod: critical("f/f1", File)},
		{Seq: 3, Source: HTTP, Pod: critical("h/h1", HTTP)}, {Seq: 4, Source: API, Pod: critical("a/a1", API)},
	}
	if err := w.db.UpdatePods(ctx, old, nil); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if err := w.Adopt(ctx, []Recovered{{Source: File, Pod: critical("r/r1", File)},
		{Source: API, Pod: critical("s/r2", API)}}); err != nil {
		t.Fatal(err)
	}
	for _, p := range w.List() {
		if got, want := demand.HasSystemPriority(p.Pod), want[p.Pod.UID]; got != want {
			t.Errorf("%s: the priority is that of the system: %v", p.Pod.UID, got)
		}
	}
	if len(w.List()) != len(want) {
		t.Errorf("there are %s", w.show())
	}
}

// TestRewrite checks that Rewrite stores lost rows again, and removes old copies of rows that a repair of the store has found.
func TestRewrite(t *testing.T) {
	disk := &memory{pods: map[types.UID]store.Pod{}}
	d, err := New(Config{Store: disk, Poke: func(types.UID) {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Set(t.Context(), File, sourcePods("a/a1", "b/b1"), nil); err != nil {
		t.Fatal(err)
	}
	clear(disk.pods)
	disk.pods["c1"] = store.Pod{Source: File, Pod: pod("c/c1")}
	err = d.Rewrite(t.Context())
	if uids := slices.Sorted(maps.Keys(disk.pods)); err != nil || !slices.Equal(uids, []types.UID{"a1", "b1"}) {
		t.Errorf("rows %q, %v", uids, err)
	}
}
