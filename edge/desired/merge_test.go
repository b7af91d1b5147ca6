package desired

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keys"
)

func TestFirstWins(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	w.want("first", w.Set(ctx, HTTP, sourcePods("a/a9"), nil), "a9", "a9")
	w.want("second source", w.Set(ctx, File, sourcePods("a/a1", "a/a2"), nil), "a9")
	if got := w.problems(); strings.Count(got, "already defined by /manifests/a9") != 2 {
		t.Error(got)
	}
	w.want("first is gone", w.Set(ctx, HTTP, nil, nil), "a1 waiting a9, a9 deleting", "a1", "a9")
	if got := w.problems(); got != "file /manifests/a2 metadata.name: pod default/a is already defined by /manifests/a1, which came first" {
		t.Error(got)
	}
	w.want("another order", w.Set(ctx, File, sourcePods("a/a2", "a/a1"), nil), "a1 waiting a9, a9 deleting")
	w.want("only the other", w.Set(ctx, File, sourcePods("a/a2"), []Problem{{Origin: "x", Message: "bad"}}),
		"a1 deleting, a2 waiting a9, a9 deleting", "a1", "a2")
	if got := w.problems(); got != "file x : bad" {
		t.Error(got)
	}
	w.want("forget", w.Forget(ctx, "a9"), "a1 deleting, a2 waiting a1", "a2", "a9")
}

// TestFixedUIDs moves, copies and renames manifests with a fixed UID, and checks the resulting pods.
func TestFixedUIDs(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	at := func(spec, origin string) SourcePod { return SourcePod{Pod: pod(spec), Origin: origin} }
	w.want("one", w.Set(ctx, File, []SourcePod{at("a/u", "/m/2")}, nil), "u", "u")
	w.want("a copy", w.Set(ctx, File, []SourcePod{at("a/u/other", "/m/1"), at("a/u", "/m/2")}, nil), "u")
	if got := w.problems(); got != "file /m/1 metadata.uid: the UID of pod default/a is already used in /m/2" {
		t.Error(got)
	}
	w.want("moved", w.Set(ctx, File, []SourcePod{at("a/u", "/m/1")}, nil), "u", "u")
	w.want("changed in place", w.Set(ctx, File, []SourcePod{at("a/u/other", "/m/1")}, nil), "u", "u")
	if p, _ := w.Get("u"); p.Origin != "/m/1" || p.Pod.Labels["version"] != "other" {
		t.Error(p)
	}
	w.want("another name", w.Set(ctx, File, []SourcePod{at("b/u", "/m/1")}, nil), "u deleting", "u")
	w.want("forget", w.Forget(ctx, "u"), "u", "u")
	if p, _ := w.Get("u"); p.Pod.Name != "b" || w.problems() != "" {
		t.Error(p, w.problems())
	}
	w.want("another source", w.Set(ctx, HTTP, []SourcePod{at("c/u", "http://h")}, nil), "u")
	w.want("twice in one file", w.Set(ctx, File, []SourcePod{at("b/u", "/m/1"), at("c/u", "/m/1"), at("d/", "/m/3")}, nil), "u")
	if got := w.problems(); got != `file /m/1 metadata.uid: the UID of pod default/c is used twice
file /m/3 metadata.uid: pod default/d has no UID
http http://h metadata.name: the UID of pod default/c is already used by pod default/b of /m/1` {
		t.Error(got)
	}
}

// TestTooLargeNow checks that a known pod that is now too large for the node is a problem only while it has not ended, and that the problem
// names no field, also after other changes.
func TestTooLargeNow(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	w.want("known", w.Set(ctx, API, sourcePods("a/a1", "b/b1"), nil), "a1, b1", "a1", "b1")
	large := sourcePods("a/a1", "b/b1")
	for i := range large {
		large[i].Pod.Annotations = map[string]string{keys.TooLarge: ""}
		large[i].Pod.Spec = v1.PodSpec{}
	}
	large[1].Pod.Status.Phase = v1.PodSucceeded
	const problem = "api /manifests/a1 : pod default/a, or the list of all pods, is too large for this node: its changes have no effect " +
		"here"
	if err := w.Set(ctx, API, large, nil); err != nil || w.problems() != problem {
		t.Error(err, w.problems())
	}
	if err := w.Set(ctx, File, sourcePods("c/c1"), nil); err != nil || w.problems() != problem {
		t.Error(err, w.problems())
	}
}

// TestSeenAgain checks that a pod stays the same when its unchanged manifest is read again at a later time.
func TestSeenAgain(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	seen := func(when string) []SourcePod {
		c := sourcePods("a/a1")
		c[0].Pod.Annotations = map[string]string{keys.ConfigSeen: when}
		return c
	}
	w.want("seen", w.Set(ctx, File, seen("1970"), nil), "a1", "a1")
	w.want("seen again", w.Set(ctx, File, seen("2026"), nil), "a1")
}

// TestUnsureOriginsKeepTheirPods checks that the pods of a manifest that cannot be read are kept.
func TestUnsureOriginsKeepTheirPods(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	bad := []Problem{{Origin: "/manifests/a1", Field: "spec", Message: "bad"}}
	w.want("good", w.Set(ctx, File, sourcePods("a/a1", "b/b1"), nil), "a1, b1", "a1", "b1")
	w.restart()
	w.want("bad", w.Set(ctx, File, nil, bad), "a1, b1 deleting", "b1")
	if got := w.problems(); got != "file /manifests/a1 spec: bad" {
		t.Error(got)
	}
	w.Desired.ReportFailure(File, []Problem{{Message: "gone"}})
	w.want("failed", nil, "a1, b1 deleting")
	if got := w.problems(); got != "file  : gone" {
		t.Error(got)
	}
	w.want("removed", w.Set(ctx, File, nil, nil), "a1 deleting, b1 deleting", "a1")
}

// TestIsReplaced checks that a deleting pod of the API server counts as replaced if the server has another pod with the same name, or wants
// the pod to run again, also after a restart. A pod with this name from another source does not count.
func TestIsReplaced(t *testing.T) {
	w := newWorld(t)
	check := func(when string, want ...types.UID) {
		t.Helper()
		var got []types.UID
		for _, p := range w.List() {
			if w.IsReplaced(p.Pod.UID) {
				got = append(got, p.Pod.UID)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v are replaced, not %v", when, got, want)
		}
	}
	set := func(source string, specs ...string) {
		t.Helper()
		if err := w.Set(t.Context(), source, sourcePods(specs...), nil); err != nil {
			t.Fatal(err)
		}
	}
	set(API, "a/1", "b/2", "c/3")
	check("all are wanted")
	set(API, "a/4", "c/5")
	check("two have replacements", "1", "3")
	set(API, "a/6", "b/2", "c/3")
	check("one is replaced again, and two are wanted again", "1", "2", "3", "4", "5")
	w.restart()
	check("restarted", "1", "2", "3", "4", "5")
	set(API)
	check("all are deleted")
	set(File, "a/7", "b/8")
	check("static pods have the names")
}
