package local

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/podtest"
)

// A world is a node with a real database.
type world struct {
	testing.TB
	*Objects
	path  string
	store *store.Store

	mu       sync.Mutex
	lastSets []types.UID
}

func newWorld(t testing.TB) *world {
	w := &world{TB: t, path: filepath.Join(t.TempDir(), "islet.db")}
	w.open()
	t.Cleanup(func() { w.store.Close() })
	return w
}

// open starts the agent. The parameter pods contains the stored pods.
func (w *world) open(pods ...*v1.Pod) {
	w.Helper()
	log := slog.New(slog.NewTextHandler(w.Output(), nil))
	var err error
	if w.store, err = store.Open(context.Background(), w.path, log); err != nil {
		w.Fatal(err)
	}
	w.Objects, err = Open(context.Background(), Config{Store: w.store, Log: log, Changed: func(uid types.UID) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lastSets = append(w.lastSets, uid)
	}}, pods)
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) restart(pods ...*v1.Pod) {
	w.Helper()
	w.must(w.store.Close())
	w.open(pods...)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// tells returns the pods for which Changed was called since the last call of this method.
func (w *world) tells() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.lastSets)
	out := fmt.Sprint(w.lastSets)
	w.lastSets = nil
	return out
}

// set sets the objects of a source. The parameter unsure is an origin with a problem.
func (w *world) set(source string, unsure string, all ...DefinedObject) {
	w.Helper()
	w.must(w.Set(w.Context(), source, all, map[string]bool{unsure: true}))
}

// value returns the value of a ConfigMap for a pod, or "none".
func (w *world) value(pod *v1.Pod, name string) string {
	w.Helper()
	m, err := w.ConfigMap(pod, name)
	switch {
	case apierrors.IsNotFound(err):
		if want := fmt.Sprintf("configmap %q not found", name); err.Error() != want {
			w.Errorf("got %q, want %q", err, want)
		}
		return "none"
	case err != nil:
		w.Fatal(err)
	}
	return m.Data["key"]
}

func configMap(name, value, origin string) DefinedObject {
	return DefinedObject{&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data: map[string]string{"key": value}}, origin}
}

func claim(name, size, origin string) DefinedObject {
	set, err := manifest.Decode(fmt.Appendf(nil, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}}", name, size), manifest.Options{Source: keys.SourceFile})
	if err != nil {
		panic(err)
	}
	return DefinedObject{set.Objects[0], origin}
}

// podOf returns a pod of a source that references ConfigMaps.
func podOf(name, source string, maps ...string) *v1.Pod {
	return podtest.New(name, podtest.Source(source), podtest.ConfigMaps(maps...))
}

// TestSourcesAreApart checks that a pod can use only the objects of its own source.
func TestSourcesAreApart(t *testing.T) {
	w := newWorld(t)
	w.set(keys.SourceFile, "", configMap("a", "file", "/a"))
	w.set(keys.SourceHTTP, "", configMap("a", "url", "http://x"))
	_, err := w.Apply(t.Context(), []manifest.Object{configMap("a", "applied", "").Object}, false)
	w.must(err)
	for source, want := range map[string]string{keys.SourceFile: "file", keys.SourceHTTP: "url", keys.SourceLocal: "applied",
		keys.SourceAPI: "none"} {
		p := podOf(source, source, "a")
		w.Register(p)
		if got := w.value(p, "a"); got != want {
			t.Errorf("a pod of %s sees %s", source, got)
		}
	}
	other := podOf("other", keys.SourceFile, "a")
	other.Namespace = "other"
	if got := w.value(other, "a"); got != "none" {
		t.Error("a pod of another namespace sees", got)
	}
	if IsStatic(podOf("a", keys.SourceAPI)) || IsStatic(&v1.Pod{}) || !IsStatic(podOf("a", keys.SourceFile)) {
		t.Error("Serves returned the wrong result for a source")
	}
}

// TestChanges checks that Changed is called for the pods that reference a changed object. Unchanged objects must not be written.
func TestChanges(t *testing.T) {
	w := newWorld(t)
	a, b := podOf("a", keys.SourceFile, "m", "late"), podOf("b", keys.SourceFile, "other")
	w.set(keys.SourceFile, "", configMap("m", "1", "/m"), configMap("other", "1", "/m"))
	w.Register(a)
	w.Register(b)
	w.tells()
	for i, step := range []struct {
		all      []DefinedObject
		lastSets string
	}{
		{[]DefinedObject{configMap("m", "1", "/m"), configMap("other", "1", "/m")}, "[]"},
		{[]DefinedObject{configMap("m", "2", "/m"), configMap("other", "1", "/m")}, "[a]"},
		{[]DefinedObject{configMap("m", "2", "/elsewhere"), configMap("other", "1", "/m")}, "[]"},
		{[]DefinedObject{configMap("m", "2", "/m"), configMap("other", "1", "/m"), configMap("late", "1", "/m")}, "[a]"},
		{[]DefinedObject{configMap("other", "1", "/m")}, "[a]"},
	} {
		w.set(keys.SourceFile, "", step.all...)
		if got := w.tells(); got != step.lastSets {
			t.Errorf("step %d: Changed was called for %s, want %s", i, got, step.lastSets)
		}
	}
	before, err := os.ReadFile(w.path + "-wal")
	w.must(err)
	w.set(keys.SourceFile, "", configMap("other", "1", "/m"))
	w.restart(a, b)
	w.set(keys.SourceFile, "", configMap("other", "1", "/m"))
	if after, err := os.ReadFile(w.path + "-wal"); err == nil && len(after) > len(before) || w.tells() != "[]" {
		t.Error("an unchanged object was written or reported")
	}
}

// TestRemoved checks that a removed object is kept until the last pod that uses the object is released. A restart does not change this.
func TestRemoved(t *testing.T) {
	w := newWorld(t)
	had, waits := podOf("had", keys.SourceFile, "m"), podOf("waits", keys.SourceFile, "m")
	w.set(keys.SourceFile, "", configMap("m", "1", "/m"))
	w.Register(had)
	w.set(keys.SourceFile, "")
	w.Register(waits)
	check := func(when string) {
		t.Helper()
		if w.value(had, "m") != "1" || w.value(waits, "m") != "none" || !w.Deleted(had, podspec.ConfigMap, "m") {
			t.Errorf("%s: had %s, waits %s", when, w.value(had, "m"), w.value(waits, "m"))
		}
	}
	check("after it was removed")
	w.restart(had)
	w.Register(waits)
	check("after a restart")
	w.set(keys.SourceFile, "", configMap("m", "2", "/m"))
	if w.value(waits, "m") != "2" || w.value(had, "m") != "2" {
		t.Error("back again:", w.value(had, "m"), w.value(waits, "m"))
	}
	w.set(keys.SourceFile, "")
	w.must(w.Release(t.Context(), "had"))
	w.must(w.Release(t.Context(), "waits"))
	if all := w.List(); len(all) != 0 {
		t.Error("left:", all)
	}
	w.restart()
	if all := w.List(); len(all) != 0 {
		t.Error("left in the store:", all)
	}
}

// TestUnsure checks that an unreadable manifest removes no objects. No other manifest replaces the objects of an unreadable manifest.
func TestUnsure(t *testing.T) {
	w := newWorld(t)
	p := podOf("p", keys.SourceFile, "a", "b")
	w.Register(p)
	w.set(keys.SourceFile, "", configMap("a", "1", "/a"), configMap("b", "1", "/b"))
	w.restart(p)
	w.set(keys.SourceFile, "/a", configMap("b", "2", "/b"), configMap("a", "stolen", "/b"))
	if w.value(p, "a") != "1" || w.value(p, "b") != "2" {
		t.Error(w.value(p, "a"), w.value(p, "b"))
	}
	if all := w.Problems(); len(all) != 1 || all[0].Origin != "/b" ||
		all[0].Message != "ConfigMap default/a is already defined by /a, which came first" {
		t.Error(all)
	}
}

// TestTwice checks that an existing object does not change when a second manifest defines the same object.
func TestTwice(t *testing.T) {
	w := newWorld(t)
	p := podOf("p", keys.SourceFile, "a")
	w.Register(p)
	w.set(keys.SourceFile, "", configMap("a", "1", "/b"))
	w.set(keys.SourceFile, "", configMap("a", "2", "/a"), configMap("a", "1", "/b"))
	if got := w.value(p, "a"); got != "1" {
		t.Error("the newcomer won:", got)
	}
	if all := w.Problems(); len(all) != 1 || all[0].Origin != "/a" || all[0].Field != "metadata.name" {
		t.Error(all)
	}
	w.set(keys.SourceFile, "", configMap("a", "2", "/a"))
	if got := w.value(p, "a"); got != "2" || len(w.Problems()) != 0 {
		t.Error(got, w.Problems())
	}
}

// TestRefused checks that a change is not applied if an API server would reject the change. A problem is reported instead.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	frozen := func(value string) DefinedObject {
		c := configMap("a", value, "/a")
		yes := true
		c.Object.(*v1.ConfigMap).Immutable = &yes
		return c
	}
	w.set(keys.SourceFile, "", frozen("1"), claim("c", "2Gi", "/c"))
	w.set(keys.SourceFile, "", frozen("2"), claim("c", "1Gi", "/c"))
	var all []string
	for _, p := range w.Problems() {
		all = append(all, p.Field+": "+p.Message)
	}
	want := "data: field is immutable when `immutable` is set; spec.resources.requests[storage]: field can not be less than before, 2147483648 bytes"
	if got := strings.Join(all, "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	p := podOf("p", keys.SourceFile, "a")
	if got := w.value(p, "a"); got != "1" {
		t.Error("changed to", got)
	}
	w.set(keys.SourceFile, "", claim("c", "4Gi", "/c"))
	if len(w.Problems()) != 0 || sizeOf(w.List()[0].Object.(*v1.PersistentVolumeClaim)) != 4<<30 {
		t.Error(w.Problems(), w.List())
	}
}

// TestOneClaim checks that a PersistentVolumeClaim belongs to one source until this source removes the claim.
func TestOneClaim(t *testing.T) {
	w := newWorld(t)
	w.set(keys.SourceFile, "", claim("c", "1Gi", "/c"))
	w.set(keys.SourceHTTP, "", claim("c", "2Gi", "http://x"))
	if _, err := w.Apply(t.Context(), []manifest.Object{claim("c", "1Gi", "").Object}, false); err == nil ||
		!strings.Contains(err.Error(), "is already defined by /c, which came first") {
		t.Error(err)
	}
	if all := w.Problems(); len(all) != 1 || all[0].Source != keys.SourceHTTP {
		t.Error(all)
	}
	w.set(keys.SourceFile, "")
	if all := w.List(); len(w.Problems()) != 0 || len(all) != 1 || all[0].Source != keys.SourceHTTP {
		t.Error(w.Problems(), all)
	}
}

func TestApply(t *testing.T) {
	w := newWorld(t)
	apply := func(dry bool, all ...DefinedObject) string {
		t.Helper()
		var objects []manifest.Object
		for _, c := range all {
			objects = append(objects, c.Object)
		}
		actions, err := w.Apply(t.Context(), objects, dry)
		w.must(err)
		return strings.Join(actions, " ")
	}
	a, b := configMap("a", "1", ""), configMap("b", "1", "")
	if got := apply(true, a, b); got != "created created" || len(w.List()) != 0 {
		t.Error(got, w.List())
	}
	if got := apply(false, a); got != "created" {
		t.Error(got)
	}
	w.restart()
	if got := apply(false, a, b, configMap("a", "2", "")); got != "unchanged created configured" {
		t.Error(got)
	}
	found, err := w.Delete(t.Context(), podspec.ConfigMap, "default", "a")
	again, _ := w.Delete(t.Context(), podspec.ConfigMap, "default", "a")
	if !found || err != nil || again || len(w.List()) != 1 {
		t.Error(found, err, again, w.List())
	}
}

// TestSecrets checks that Secrets are encrypted on the disk. They must also be usable as image pull secrets.
func TestSecrets(t *testing.T) {
	w := newWorld(t)
	const password = "correct horse battery staple"
	set, err := manifest.Decode(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"pull"},"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"{\"auths\":{\"registry.example\":{\"username\":\"me\",\"password\":\"%s\"}}}"}}`, password), manifest.Options{Source: keys.SourceFile})
	w.must(err)
	w.set(keys.SourceFile, "", DefinedObject{set.Objects[0], "/s"})
	p := podOf("p", keys.SourceFile)
	p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "pull"}, {Name: "missing"}}
	w.Register(p)
	has, missing := w.PullSecrets(t.Context(), p, "registry.example/app")
	if len(has) != 1 || has[0].Auth.Password != password || has[0].From.UID == "" || !slices.Equal(missing, []string{"missing"}) {
		t.Error(has, missing)
	}
	foreign := podOf("foreign", keys.SourceHTTP)
	foreign.Spec.ImagePullSecrets = p.Spec.ImagePullSecrets
	if has, missing := w.PullSecrets(t.Context(), foreign, "registry.example/app"); len(has) != 0 || len(missing) != 2 {
		t.Error("a pod of another source has", has)
	}
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(w.path + suffix)
		w.must(err)
		if bytes.Contains(data, []byte(password)) {
			t.Error("plain text in islet.db" + suffix)
		}
	}
}

// TestAtOnce runs sources, pods and readers concurrently.
func TestAtOnce(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	for i := range 4 {
		source := []string{keys.SourceFile, keys.SourceHTTP, keys.SourceLocal, keys.SourceFile}[i]
		all.Go(func() {
			for n := range 20 {
				p := podOf(fmt.Sprint("p", i, "-", n), source, "m")
				w.Register(p)
				if source == keys.SourceLocal {
					if _, err := w.Apply(t.Context(), []manifest.Object{configMap("m", fmt.Sprint(n), "").Object}, false); err != nil {
						t.Error(err)
					}
				} else if err := w.Set(t.Context(), source, []DefinedObject{configMap("m", fmt.Sprint(n), "/m")}, nil); err != nil {
					t.Error(err)
				}
				if _, err := w.ConfigMap(p, "m"); err != nil {
					t.Error(err)
				}
				w.List()
				if err := w.Release(t.Context(), p.UID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("stuck")
	}
}
