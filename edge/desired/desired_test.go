package desired

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
)

func TestLifeOfPods(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	w.want("first set", w.Set(ctx, File, sourcePods("a/a1", "b/b1"), nil), "a1, b1", "a1", "b1")
	w.want("the same set", w.Set(ctx, File, sourcePods("a/a1", "b/b1"), nil), "a1, b1")
	w.want("another source", w.Set(ctx, HTTP, sourcePods("c/c1"), nil), "a1, b1, c1", "c1")
	w.restart()
	if w.HasReported(File) || !w.HasReported(Local) {
		t.Error("after a restart Spoken must be true only for the local source")
	}
	w.want("restart", nil, "a1, b1, c1")
	w.want("gone and changed", w.Set(ctx, File, sourcePods("a/a2"), nil), "a1 deleting, a2 waiting a1, b1 deleting, c1", "a1", "a2", "b1")
	if p, _ := w.Get("a1"); p.Grace != 7*time.Second {
		t.Error("the grace period is not that of the manifest:", p.Grace)
	}
	if !w.HasReported(File) || w.HasReported(HTTP) {
		t.Error("Spoken must be true only for the file source")
	}
	w.restart()
	w.want("restart", nil, "a1 deleting, a2 waiting a1, b1 deleting, c1")
	w.want("forget", w.Forget(ctx, "a1"), "a2, b1 deleting, c1", "a1", "a2")
	if err := w.db.Reject(ctx, "b1", store.Admission{Reason: "of the former life"}); err != nil {
		t.Fatal(err)
	}
	w.want("back while ending", w.Set(ctx, File, sourcePods("a/a2", "b/b1"), nil), "a2, b1 deleting, c1")
	w.want("started anew", w.Forget(ctx, "b1"), "a2, b1, c1", "b1")
	if rejected, err := w.db.Rejections(ctx); err != nil || len(rejected) != 0 {
		t.Error(rejected, err)
	}
	w.want("not forgotten twice", w.Forget(ctx, "b1"), "a2, b1, c1")
	if static, fromAPI := w.Restarted(); static != 1 || fromAPI != 0 {
		t.Errorf("%d static pods and %d pods of the API server were restarted", static, fromAPI)
	}
	w.restart()
	if static, fromAPI := w.Restarted(); static+fromAPI != 0 {
		t.Error("restarts of the former agent are counted")
	}
	if p, _ := w.Get("b1"); p.Lives != 1 {
		t.Errorf("b1 ended %d times and came back, not once", p.Lives)
	}
	w.want("gone again", w.Set(ctx, File, sourcePods("a/a2"), nil), "a2, b1 deleting, c1", "b1")
	w.want("gone for good", w.Forget(ctx, "b1"), "a2, c1", "b1")
	w.want("anew", w.Set(ctx, File, sourcePods("a/a2", "b/b1"), nil), "a2, b1, c1", "b1")
	if p, _ := w.Get("b1"); p.Lives != 0 {
		t.Errorf("%d former lives are counted for a forgotten pod", p.Lives)
	}
}

// TestRestarted checks that Restarted counts a pod that was added again before it had ended. The pod is counted once, when it starts
// again.
func TestRestarted(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	restarted := func(static, fromAPI int) {
		t.Helper()
		if s, a := w.Restarted(); s != static || a != fromAPI {
			t.Errorf("%d static pods and %d of the API server, not %d and %d", s, a, static, fromAPI)
		}
	}
	set := func(source string, names ...string) {
		t.Helper()
		if err := w.Set(ctx, source, sourcePods(names...), nil); err != nil {
			t.Fatal(err)
		}
	}
	forget := func(uid types.UID) {
		t.Helper()
		if err := w.Forget(ctx, uid); err != nil {
			t.Fatal(err)
		}
	}
	for _, source := range []string{API, File} {
		name := source + "/" + source
		set(source, name)
		set(source)
		forget(types.UID(source))
		set(source, name) // after the end: a new pod
	}
	restarted(0, 0)
	set(API)
	set(API, API+"/"+API)
	restarted(0, 0)
	forget(API)
	restarted(0, 1)
	for n := range 3 {
		set(File)
		set(File, File+"/"+File)
		forget(File)
		restarted(n+1, 1)
	}
}

func TestLocal(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	apply := func(spec string) error { return w.Apply(ctx, []*v1.Pod{pod(spec)}) }
	w.want("file", w.Set(ctx, File, sourcePods("f/f1"), nil), "f1", "f1")
	w.want("apply", apply("a/a1"), "a1, f1", "a1")
	w.want("apply the same", apply("a/a1"), "a1, f1")
	w.want("apply another", apply("a/a2"), "a1 deleting, a2 waiting a1, f1", "a1", "a2")
	w.want("apply the first again", apply("a/a1"), "a1 deleting, a2 deleting, f1", "a2")
	w.restart()
	w.want("forget", w.Forget(ctx, "a2"), "a1 deleting, f1", "a2")
	w.want("forget", w.Forget(ctx, "a1"), "a1, f1", "a1")
	if err := errors.Join(apply("f/f2")); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
	if err := w.Delete(ctx, "f1", nil); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "/manifests/f1") {
		t.Error(err)
	}
	if err := w.Delete(ctx, "x", nil); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	w.want("delete", w.Delete(ctx, "a1", nil), "a1 deleting, f1", "a1")
	zero := int64(0)
	w.want("delete harder", w.Delete(ctx, "a1", &zero), "a1 deleting, f1", "a1")
	w.want("delete softer", w.Delete(ctx, "a1", nil), "a1 deleting, f1")
	w.want("forget", w.Forget(ctx, "a1"), "f1", "a1")
}
