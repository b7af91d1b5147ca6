package outbox

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/podtest"
)

// TestMirrorNamesNothing checks that a mirror pod has no reference that an API server rejects, and that the static pod is not
// modified.
func TestMirrorNamesNothing(t *testing.T) {
	var spec v1.PodSpec
	if err := json.Unmarshal([]byte(`{"nodeName":"n","imagePullSecrets":[{"name":"a"}],"volumes":[
		{"name":"m","configMap":{"name":"a"}},{"name":"s","secret":{"secretName":"a"}},{"name":"c","persistentVolumeClaim":{"claimName":"a"}},
		{"name":"p","projected":{"sources":[{"downwardAPI":{}},{"secret":{"name":"a"}}]}},{"name":"h","hostPath":{"path":"/x"}}],
		"initContainers":[{"name":"i","image":"i","envFrom":[{"configMapRef":{"name":"a"}}]}],
		"containers":[{"name":"c","image":"i","env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"secretKeyRef":{"name":"a","key":"k"}}},{"name":"F","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}]}`), &spec); err != nil {
		t.Fatal(err)
	}
	pod := podtest.New("p", podtest.Source(keys.SourceFile))
	pod.Spec = spec
	before := pod.DeepCopy().String()
	m := mirrorOf(pod, "uid")
	podspec.VisitReferences(&m.Spec, func(kind, name string) { t.Errorf("names %s %s", kind, name) })
	if pod.String() != before {
		t.Error("the pod was changed")
	}
	text, err := json.Marshal(m.Spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"name":"m","emptyDir":{}}`, `{"name":"p","emptyDir":{}}`,
		`{"name":"h","hostPath":{"path":"/x"}}`, `"env":[{"name":"A","value":"1"},{"name":"B"},{"name":"F","valueFrom"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

func TestMirrorPods(t *testing.T) {
	in(t, func(w *world) {
		s := static("s-n", "1")
		w.box.Put(s, status(v1.PodRunning, ""))
		synctest.Wait()
		m := w.Pod("default", "s-n")
		if m == nil || m.Annotations[v1.MirrorPodAnnotationKey] != "1" || m.OwnerReferences[0].UID != "node-uid" ||
			w.shown("s-n") != "Running" {
			t.Fatalf("%+v", m)
		}
		w.Terminate(m, 30)
		time.Sleep(time.Second)
		if again := w.Pod("default", "s-n"); again == nil || again.UID == m.UID || w.shown("s-n") != "Running" {
			t.Error("not made again")
		}
		w.box.Put(static("s-n", "2"), status(v1.PodRunning, "other"))
		time.Sleep(time.Second)
		if m := w.Pod("default", "s-n"); m.Annotations[v1.MirrorPodAnnotationKey] != "2" || w.shown("s-n") != "Running other" {
			t.Errorf("%+v", m)
		}
		m = w.Pod("default", "s-n")
		w.box.Put(static("s-n", "2"), status(v1.PodFailed, "preempted"))
		time.Sleep(time.Second)
		if again := w.Pod("default", "s-n"); again.UID != m.UID || w.shown("s-n") != "Failed preempted" {
			t.Errorf("%+v", again)
		}
		w.box.Put(static("s-n", "2"), status(v1.PodRunning, "other"))
		time.Sleep(time.Second)
		if again := w.Pod("default", "s-n"); again == nil || again.UID == m.UID || w.shown("s-n") != "Running other" {
			t.Errorf("the pod runs again: %+v", again)
		}
		w.end()
		w.spoken.Store(false)
		w.start()
		time.Sleep(time.Minute)
		if w.shown("s-n") != "Running other" {
			t.Error("deleted before its source has delivered its set")
		}
		w.spoken.Store(true)
		time.Sleep(10 * time.Second)
		if w.shown("s-n") != "gone" {
			t.Error("the mirror pod was kept although no source has the pod")
		}
		// A pod of the API server with the name of a mirror pod is not modified.
		w.bind("s-n")
		w.box.Put(s, status(v1.PodRunning, "static"))
		time.Sleep(time.Hour)
		if w.shown("s-n") != "" || w.Requests("POST pods") > 30 {
			t.Error(w.shown("s-n"), w.Requests("POST pods"))
		}
	})
}

// TestMirrorNames checks that pods of bundles and of islet apply have mirror pods of their own on each node of a cluster. A mirror pod
// that an earlier version has created under the pod's own name is deleted, and a mirror pod of another node is left alone.
func TestMirrorNames(t *testing.T) {
	in(t, func(w *world) {
		other := podtest.New("web.n", podtest.Node("other"), podtest.Image("a:1"), podtest.Annotation(v1.MirrorPodAnnotationKey, "1"))
		old := podtest.New("db", podtest.Node("n"), podtest.Image("a:1"), podtest.Annotation(v1.MirrorPodAnnotationKey, "2"))
		other.UID, old.UID = "", ""
		w.Put(other)
		w.Put(old)
		synctest.Wait()
		before := w.Pod("default", "web.n").UID
		local := func(source, name, hash string) *v1.Pod {
			p := static(name, hash)
			podtest.Source(source)(p)
			return p
		}
		for _, p := range []*v1.Pod{local(keys.SourceLocal, "web", "1"), local(keys.SourceBundle, "db", "2"), local(keys.SourceBundle, "bus", "3"),
			local(keys.SourceFile, "bus-n", "4")} {
			w.box.Put(p, status(v1.PodRunning, p.Annotations[keys.ConfigSource]))
			if again := p.Name; again != w.box.mirrors[nameOf(p)].manifest.Name {
				t.Errorf("the pod %s was renamed", again)
			}
		}
		time.Sleep(time.Hour)
		for name, want := range map[string]string{"db": "gone", "db.n": "Running bundle", "bus.n": "Running bundle", "bus-n": "Running file", "web.n": ""} {
			if got := w.shown(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if p := w.Pod("default", "web.n"); p.UID != before || p.Spec.NodeName != "other" || w.Requests("POST pods") > 30 {
			t.Errorf("the pod of another node was changed: %+v, %d requests", p, w.Requests("POST pods"))
		}
		w.Remove(w.Pod("default", "web.n"))
		time.Sleep(10 * time.Minute)
		if got := w.shown("web.n"); got != "Running local" {
			t.Error(got)
		}
		if err := w.box.Finish(t.Context(), local(keys.SourceLocal, "web", "1")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if got := w.shown("web.n"); got != "gone" {
			t.Error(got)
		}
	})
}
