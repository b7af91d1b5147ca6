package desired

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
)

// A world is a Desired with its store. A test can restart the Desired.
type world struct {
	testing.TB
	*Desired
	db    *store.Store
	path  string
	hold  bool
	poked []types.UID
}

func newWorld(t testing.TB) *world {
	w := &world{TB: t, path: filepath.Join(t.TempDir(), "islet.db")}
	w.restart()
	t.Cleanup(func() { w.db.Close() })
	return w
}

func (w *world) restart() {
	w.Helper()
	if w.Desired != nil {
		if err := w.db.Close(); err != nil {
			w.Fatal(err)
		}
	}
	log := slog.New(slog.NewTextHandler(w.Output(), nil))
	var err error
	if w.db, err = store.Open(context.Background(), w.path, log); err != nil {
		w.Fatal(err)
	}
	poke := func(uid types.UID) { w.poked = append(w.poked, uid) }
	if w.Desired, err = New(Config{Store: w.db, Poke: poke, Hold: w.hold, Log: log}); err != nil {
		w.Fatal(err)
	}
}

// This function returns the pod of a spec "name/uid" or "name/uid/version". Pods of different versions have different content.
func pod(spec string) *v1.Pod {
	part := strings.Split(spec+"//", "/")
	grace := int64(7)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: part[0], UID: types.UID(part[1]),
			Labels: map[string]string{"version": part[2]}},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: &grace},
	}
}

// This function returns one Claim for each "name/uid". Each claim has a different origin.
func claims(specs ...string) (all []Claim) {
	for _, spec := range specs {
		all = append(all, Claim{Pod: pod(spec), Origin: "/manifests/" + strings.Split(spec, "/")[1]})
	}
	return all
}

// show returns each pod as "uid", "uid deleting" or "uid waiting other".
func (w *world) show() string {
	var out []string
	for _, p := range w.List() {
		s := string(p.Pod.UID)
		if p.Deleting {
			s += " deleting"
		}
		if p.Predecessor != "" {
			s += " waiting " + string(p.Predecessor)
		}
		out = append(out, s)
	}
	each := map[types.UID]Pod{}
	w.ForEach(func(p Pod) { each[p.Pod.UID] = p })
	if listed := w.List(); len(each) != len(listed) || slices.ContainsFunc(listed, func(p Pod) bool { return each[p.Pod.UID] != p }) {
		w.Errorf("Each passes %v, List returns %v", each, listed)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (w *world) want(what string, err error, show string, poked ...types.UID) {
	w.Helper()
	slices.Sort(w.poked)
	got := slices.Compact(w.poked)
	w.poked = nil
	if err != nil {
		w.Errorf("%s: %v", what, err)
	}
	if w.show() != show {
		w.Errorf("%s: have %q, want %q", what, w.show(), show)
	}
	if !slices.Equal(got, poked) {
		w.Errorf("%s: poked %v, want %v", what, got, poked)
	}
	for _, row := range w.rows {
		stored, err := w.Store.Pods(w.Context())
		if err != nil || !slices.ContainsFunc(stored, func(p store.Pod) bool {
			return p.Pod.UID == row.Pod.UID && p.Deleting == row.Deleting && p.Again == row.Again && p.Lives == row.Lives &&
				p.Grace == row.Grace
		}) {
			w.Errorf("%s: pod %s is not stored so: %v", what, row.Pod.UID, err)
		}
	}
}

func (w *world) problems() string {
	var all []string
	for _, p := range w.Problems() {
		all = append(all, fmt.Sprintf("%s %s %s: %s", p.Source, p.Origin, p.Field, p.Message))
	}
	return strings.Join(all, "\n")
}

func TestLifeOfPods(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	w.want("first set", w.Set(ctx, File, claims("a/a1", "b/b1"), nil), "a1, b1", "a1", "b1")
	w.want("the same set", w.Set(ctx, File, claims("a/a1", "b/b1"), nil), "a1, b1")
	w.want("another source", w.Set(ctx, HTTP, claims("c/c1"), nil), "a1, b1, c1", "c1")
	w.restart()
	if w.HasReported(File) || !w.HasReported(Local) {
		t.Error("after a restart Spoken must be true only for the local source")
	}
	w.want("restart", nil, "a1, b1, c1")
	w.want("gone and changed", w.Set(ctx, File, claims("a/a2"), nil), "a1 deleting, a2 waiting a1, b1 deleting, c1", "a1", "a2", "b1")
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
	w.want("back while ending", w.Set(ctx, File, claims("a/a2", "b/b1"), nil), "a2, b1 deleting, c1")
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
	w.want("gone again", w.Set(ctx, File, claims("a/a2"), nil), "a2, b1 deleting, c1", "b1")
	w.want("gone for good", w.Forget(ctx, "b1"), "a2, c1", "b1")
	w.want("anew", w.Set(ctx, File, claims("a/a2", "b/b1"), nil), "a2, b1, c1", "b1")
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
		if err := w.Set(ctx, source, claims(names...), nil); err != nil {
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

func TestFirstWins(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	w.want("first", w.Set(ctx, HTTP, claims("a/a9"), nil), "a9", "a9")
	w.want("second source", w.Set(ctx, File, claims("a/a1", "a/a2"), nil), "a9")
	if got := w.problems(); strings.Count(got, "already defined by /manifests/a9") != 2 {
		t.Error(got)
	}
	w.want("first is gone", w.Set(ctx, HTTP, nil, nil), "a1 waiting a9, a9 deleting", "a1", "a9")
	if got := w.problems(); got != "file /manifests/a2 metadata.name: pod default/a is already defined by /manifests/a1, which came first" {
		t.Error(got)
	}
	w.want("another order", w.Set(ctx, File, claims("a/a2", "a/a1"), nil), "a1 waiting a9, a9 deleting")
	w.want("only the other", w.Set(ctx, File, claims("a/a2"), []Problem{{Origin: "x", Message: "bad"}}),
		"a1 deleting, a2 waiting a9, a9 deleting", "a1", "a2")
	if got := w.problems(); got != "file x : bad" {
		t.Error(got)
	}
	w.want("forget", w.Forget(ctx, "a9"), "a1 deleting, a2 waiting a1", "a2", "a9")
}

func TestLocal(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	apply := func(spec string) error { return w.Apply(ctx, []*v1.Pod{pod(spec)}) }
	w.want("file", w.Set(ctx, File, claims("f/f1"), nil), "f1", "f1")
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

// TestFixedUIDs moves, copies and renames manifests with a fixed UID, and checks the resulting pods.
func TestFixedUIDs(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	at := func(spec, origin string) Claim { return Claim{Pod: pod(spec), Origin: origin} }
	w.want("one", w.Set(ctx, File, []Claim{at("a/u", "/m/2")}, nil), "u", "u")
	w.want("a copy", w.Set(ctx, File, []Claim{at("a/u/other", "/m/1"), at("a/u", "/m/2")}, nil), "u")
	if got := w.problems(); got != "file /m/1 metadata.uid: the UID of pod default/a is already used in /m/2" {
		t.Error(got)
	}
	w.want("moved", w.Set(ctx, File, []Claim{at("a/u", "/m/1")}, nil), "u", "u")
	w.want("changed in place", w.Set(ctx, File, []Claim{at("a/u/other", "/m/1")}, nil), "u", "u")
	if p, _ := w.Get("u"); p.Origin != "/m/1" || p.Pod.Labels["version"] != "other" {
		t.Error(p)
	}
	w.want("another name", w.Set(ctx, File, []Claim{at("b/u", "/m/1")}, nil), "u deleting", "u")
	w.want("forget", w.Forget(ctx, "u"), "u", "u")
	if p, _ := w.Get("u"); p.Pod.Name != "b" || w.problems() != "" {
		t.Error(p, w.problems())
	}
	w.want("another source", w.Set(ctx, HTTP, []Claim{at("c/u", "http://h")}, nil), "u")
	w.want("twice in one file", w.Set(ctx, File, []Claim{at("b/u", "/m/1"), at("c/u", "/m/1"), at("d/", "/m/3")}, nil), "u")
	if got := w.problems(); got != `file /m/1 metadata.uid: the UID of pod default/c is used twice
file /m/3 metadata.uid: pod default/d has no UID
http http://h metadata.name: the UID of pod default/c is already used by pod default/b of /m/1` {
		t.Error(got)
	}
}

// TestSeenAgain checks that a pod stays the same when its unchanged manifest is read again at a later time.
func TestSeenAgain(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	seen := func(when string) []Claim {
		c := claims("a/a1")
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
	w.want("good", w.Set(ctx, File, claims("a/a1", "b/b1"), nil), "a1, b1", "a1", "b1")
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
	w.want("unsure", w.Set(ctx, File, claims("a/a1"), []Problem{{Origin: "/manifests/b1", Message: "bad"}}),
		"a1 waiting a2, a2 deleting, b1, e1 deleting, l1", "a1")
	w.want("sure", w.Set(ctx, File, claims("a/a1"), nil), "a1 waiting a2, a2 deleting, b1 deleting, e1 deleting, l1", "b1")
}

// TestFullDisk checks that nothing changes on a full disk. The reported problem must contain the reason, and a later call must succeed.
func TestFullDisk(t *testing.T) {
	disk := &memory{pods: map[types.UID]store.Pod{}, full: true}
	d, err := New(Config{Store: disk, Poke: func(types.UID) {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	bad := []Problem{{Origin: "x", Message: "bad"}}
	if err := d.Set(ctx, File, claims("a/a1"), bad); !errors.Is(err, errFull) || len(d.List()) != 0 || d.HasReported(File) {
		t.Error(err, d.List())
	}
	if got := d.Problems(); len(got) != 2 || !strings.Contains(got[0].Message, "full") {
		t.Error(got)
	}
	disk.full = false
	if err := d.Set(ctx, File, claims("a/a1"), bad); err != nil || len(d.List()) != 1 || len(d.Problems()) != 1 {
		t.Error(err, d.List(), d.Problems())
	}
}

// TestPokeMayCallBack checks that Poke may call methods of Desired, including methods that change it.
func TestPokeMayCallBack(t *testing.T) {
	var d *Desired
	disk := &memory{pods: map[types.UID]store.Pod{}}
	d, err := New(Config{Store: disk, Log: slog.New(slog.DiscardHandler), Poke: func(uid types.UID) {
		if p, ok := d.Get(uid); ok && p.Deleting {
			if err := d.Forget(t.Context(), uid); err != nil {
				t.Error(err)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range [][]Claim{claims("a/a1"), nil} {
		if err := d.Set(t.Context(), File, set, nil); err != nil {
			t.Fatal(err)
		}
	}
	if left := d.List(); len(left) != 0 {
		t.Error(left)
	}
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
	if err := d.Set(t.Context(), File, claims("a/a1", "b/b1"), nil); err != nil {
		t.Fatal(err)
	}
	clear(disk.pods)
	disk.pods["c1"] = store.Pod{Source: File, Pod: pod("c/c1")}
	err = d.Rewrite(t.Context())
	if uids := slices.Sorted(maps.Keys(disk.pods)); err != nil || !slices.Equal(uids, []types.UID{"a1", "b1"}) {
		t.Errorf("rows %q, %v", uids, err)
	}
}

// TestHold checks that a pod is kept while Hold is set, although the source no longer delivers the pod. The pod ends when an agent starts
// without Hold.
func TestHold(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	set := func(source string, specs ...string) {
		t.Helper()
		if err := w.Set(ctx, source, claims(specs...), nil); err != nil {
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
	ending := Claim{Pod: pod("c/3"), Ending: &Ending{Grace: time.Second}} // a user deleted the pod
	if err := w.Update(ctx, API, []Claim{ending}, []RemovedPod{{UID: "4"}}); err != nil {
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
	for _, set := range [][]Claim{claims("a/a1", "b/b1"), claims("a/a2"), claims("a/a2", "b/b1")} {
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
