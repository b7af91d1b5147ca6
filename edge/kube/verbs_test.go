package kube_test

import (
	"context"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/kube/kubetest"
	"github.com/islet-edge/islet/internal/podtest"
)

func client(t *testing.T, s *kubetest.Server) *kube.Client { return clientAs(t, s, false) }

func clientAs(t *testing.T, s *kubetest.Server, json bool) *kube.Client {
	t.Helper()
	cfg := s.RESTConfig()
	c, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return cfg, nil }, JSON: json})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pod(name string) *corev1.Pod {
	p := podtest.New(name, podtest.Namespace("ns"))
	p.TypeMeta, p.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "5"
	return p
}

// TestVerbsSpeakAsTheAPIServerExpects checks the requests of every verb, with protobuf and with JSON.
func TestVerbsSpeakAsTheAPIServerExpects(t *testing.T) {
	const proto, plain, some = "application/vnd.kubernetes.protobuf", "application/json", ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
	t.Run("protobuf", func(t *testing.T) { verbs(t, false, proto, proto+","+plain, proto+some+proto+","+plain) })
	t.Run("JSON", func(t *testing.T) { verbs(t, true, plain, plain, plain+some+plain) })
}

// verbs checks the headers of the requests of every verb. The parameter body is the expected Content-Type. The other two are the expected
// Accept headers: whole for an object, bare for metadata only.
func verbs(t *testing.T, json bool, body, whole, bare string) {
	s := kubetest.New(t, corev1.AddToScheme, authenticationv1.AddToScheme)
	expect := func(pattern, contentType string, answer func(w http.ResponseWriter, r *http.Request)) {
		s.Mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Content-Type"); got != contentType {
				t.Errorf("%s: Content-Type %q, want %q", pattern, got, contentType)
			}
			want := whole
			if r.Method == http.MethodPatch || r.Method == http.MethodDelete || pattern == "POST /api/v1/namespaces/ns/pods" {
				want = bare
			}
			if got := r.Header.Get("Accept"); got != want {
				t.Errorf("%s: Accept %q, want %q", pattern, got, want)
			}
			if r.URL.RawQuery != "" && r.Method != http.MethodGet {
				t.Errorf("%s: a query costs bytes: %q", pattern, r.URL.RawQuery)
			}
			if got := r.Header.Get("User-Agent"); got != kube.UserAgent {
				t.Errorf("%s: User-Agent %q", pattern, got)
			}
			if r.ProtoMajor != 2 {
				t.Errorf("%s: want HTTP/2, have %s", pattern, r.Proto)
			}
			answer(w, r)
		})
	}
	echo := func(w http.ResponseWriter, r *http.Request) {
		obj, err := s.Read(r)
		if err != nil {
			t.Error(err)
		}
		s.Write(w, r, http.StatusOK, obj)
	}
	expect("GET /api/v1/namespaces/ns/pods/a", "", func(w http.ResponseWriter, r *http.Request) { s.Write(w, r, 200, pod("a")) })
	expect("GET /api/v1/pods", "", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("fieldSelector") != "spec.nodeName=n" {
			t.Errorf("got query %q", r.URL.RawQuery)
		}
		s.Write(w, r, 200, &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{*pod("a")}})
	})
	expect("POST /api/v1/namespaces/ns/pods", body, echo)
	expect("PATCH /api/v1/namespaces/ns/pods/a/status", string(types.StrategicMergePatchType),
		func(w http.ResponseWriter, r *http.Request) { s.Write(w, r, 200, pod("a")) })
	expect("DELETE /api/v1/namespaces/ns/pods/a", body, func(w http.ResponseWriter, r *http.Request) {
		obj, err := s.Read(r)
		if o, ok := obj.(*metav1.DeleteOptions); err != nil || !ok || *o.GracePeriodSeconds != 0 || *o.Preconditions.UID != "u" {
			t.Errorf("got %v, %v", obj, err)
		}
		s.Write(w, r, 200, pod("a"))
	})
	expect("POST /api/v1/namespaces/ns/serviceaccounts/sa/token", body, echo)
	expect("GET /api/v1/nodes/n", "", func(w http.ResponseWriter, r *http.Request) {
		s.WriteError(w, r, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "n"))
	})

	ctx, c := t.Context(), clientAs(t, s, json)
	p, err := kube.Get[corev1.Pod](ctx, c, "ns", "a")
	if err != nil || p.Name != "a" {
		t.Errorf("get: %v, %v", p, err)
	}
	l, err := kube.List[corev1.PodList](ctx, c, "", metav1.ListOptions{FieldSelector: "spec.nodeName=n"})
	if err != nil || len(l.Items) != 1 {
		t.Errorf("list: %v, %v", l, err)
	}
	m, err := kube.Create(ctx, c, pod("a"))
	if err != nil || m.Name != "a" || m.Namespace != "ns" {
		t.Errorf("create: %v, %v", m, err)
	}
	m, err = kube.Patch[corev1.Pod](ctx, c, "ns", "a", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")
	if err != nil || m.Name != "a" || m.ResourceVersion != "5" {
		t.Errorf("patch: %v, %v", m, err)
	}
	if err := kube.Delete[corev1.Pod](ctx, c, "ns", "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64),
		Preconditions: metav1.NewUIDPreconditions("u")}); err != nil {
		t.Errorf("delete: %v", err)
	}
	tok, err := kube.CreateSub[corev1.ServiceAccount](ctx, c, "ns", "sa", "token",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"x"}}})
	if err != nil || tok.Spec.Audiences[0] != "x" {
		t.Errorf("token: %v, %v", tok, err)
	}
	if _, err := kube.Get[corev1.Node](ctx, c, "", "n"); !apierrors.IsNotFound(err) {
		t.Errorf("want not found, have %v", err)
	}
	if _, err := kube.Get[corev1.Binding](ctx, c, "ns", "a"); err == nil {
		t.Error("a type that is not registered must be an error")
	}
	if n := c.Requests()[kube.Outcome{Method: "GET", Status: 200}]; n != 2 {
		t.Errorf("counted %d GETs: %v", n, c.Requests())
	}
}

func TestWatch(t *testing.T) {
	s := kubetest.New(t, corev1.AddToScheme)
	events := make(chan watch.Event)
	gone := make(chan struct{})
	s.Mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("watch") != "true" || q.Get("allowWatchBookmarks") != "true" || q.Get("resourceVersion") != "7" {
			t.Errorf("got query %q", r.URL.RawQuery)
		}
		s.Watch(w, r, events)
		close(gone)
	})
	w, err := kube.Watch[corev1.Pod](t.Context(), client(t, s), "", metav1.ListOptions{ResourceVersion: "7", AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []watch.EventType{watch.Added, watch.Bookmark} {
		events <- watch.Event{Type: typ, Object: pod("a")}
		if e := <-w.ResultChan(); e.Type != typ || e.Object.(*corev1.Pod).Name != "a" {
			t.Errorf("got %v", e)
		}
	}
	status := apierrors.NewResourceExpired("too old").Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	events <- watch.Event{Type: watch.Error, Object: &status}
	if e := <-w.ResultChan(); !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("got %v", e)
	}
	w.Stop()
	<-gone
}

// TestMetadataOnly checks that the client accepts a complete object from a server that ignores the request for metadata only.
func TestMetadataOnly(t *testing.T) {
	for _, obeys := range []bool{true, false} {
		s := kubetest.New(t, corev1.AddToScheme)
		events := make(chan watch.Event, 2)
		as := func(r *http.Request) *http.Request {
			if !obeys {
				r.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
			}
			return r
		}
		s.Mux.HandleFunc("PATCH /api/v1/namespaces/ns/pods/a",
			func(w http.ResponseWriter, r *http.Request) { s.Write(w, as(r), 200, pod("a")) })
		s.Mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) { s.Watch(w, as(r), events) })
		c := client(t, s)
		m, err := kube.Patch[corev1.Pod](t.Context(), c, "ns", "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
		if err != nil || m.Name != "a" || m.ResourceVersion != "5" {
			t.Fatalf("got %v, %v", m, err)
		}
		w, err := kube.WatchMetadata[corev1.Pod](t.Context(), c, "", metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		events <- watch.Event{Type: watch.Modified, Object: pod("a")}
		e := <-w.ResultChan()
		if m, err := meta.Accessor(e.Object); err != nil || m.GetName() != "a" || m.GetResourceVersion() != "5" {
			t.Errorf("got %v, %v", e, err)
		}
		if _, all := e.Object.(*corev1.Pod); all == obeys {
			t.Errorf("got %T", e.Object)
		}
		w.Stop()
	}
}

// TestWatchOfNoServerIsAnError checks that Watch returns an error if the server cannot be reached. Without this error, a caller would call
// Watch in a busy loop.
func TestWatchOfNoServerIsAnError(t *testing.T) {
	s := kubetest.New(t)
	s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if w, err := kube.Watch[corev1.Pod](ctx, client(t, s), "", metav1.ListOptions{}); err == nil {
		w.Stop()
		t.Error("want an error")
	}
}
