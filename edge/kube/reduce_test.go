package kube_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/kube/kubetest"
	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// tooLarge contains pods that an API server accepts, with less than 1.5 MiB in etcd, and that use more than 24 MiB once they are decoded.
var tooLarge = map[string]func(p *corev1.Pod){
	"affinity": func(p *corev1.Pod) {
		required := &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 270_000)}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
	},
	"tolerations": func(p *corev1.Pod) {
		p.Spec.Tolerations = make([]corev1.Toleration, 175_000)
		for i := range p.Spec.Tolerations {
			p.Spec.Tolerations[i].Operator = "Exists"
		}
	},
	"conditions": func(p *corev1.Pod) {
		p.Status.Conditions = make([]corev1.PodCondition, 130_000)
	},
	"long message": func(p *corev1.Pod) {
		p.Status.Message = strings.Repeat("x", 300_000)
		p.Spec.Tolerations = make([]corev1.Toleration, 175_000)
	},
	"many statuses": func(p *corev1.Pod) {
		p.Status.ContainerStatuses = make([]corev1.ContainerStatus, 1000)
		p.Spec.Tolerations = make([]corev1.Toleration, 175_000)
	},
	"labels and owners": func(p *corev1.Pod) {
		p.Labels = map[string]string{}
		for i := range 50_000 {
			p.Labels[fmt.Sprint(i)] = ""
		}
		for i := range 20_000 {
			owner := metav1.OwnerReference{APIVersion: "v1", Kind: "a", Name: "a", UID: types.UID(fmt.Sprint(i))}
			p.OwnerReferences = append(p.OwnerReferences, owner)
		}
		p.Spec.Tolerations = make([]corev1.Toleration, 120_000)
	},
}

// clientOf returns a client that requests protobuf or JSON.
func clientOf(t *testing.T, s *apitest.Server, json bool) *kube.Client {
	cfg := &rest.Config{Host: "http://127.0.0.1:1", Dial: s.Dial}
	c, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return cfg, nil }, JSON: json})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseConnections)
	return c
}

// TestTooLargePods checks that a pod that is too large does not hide other pods, in every form in which the client reads pods. The client
// returns the identity of the pod, and its status, without its spec.
func TestTooLargePods(t *testing.T) {
	for name, enlarge := range tooLarge {
		for _, json := range []bool{false, true} {
			if json && name == "conditions" {
				continue // in JSON, the pod is longer than an answer may be
			}
			t.Run(fmt.Sprintf("%s/JSON=%t", name, json), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { readTooLarge(t, enlarge, json) })
			})
		}
	}
}

func readTooLarge(t *testing.T, enlarge func(p *corev1.Pod), json bool) {
	s := apitest.New(t)
	large := usual("large")
	large.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash", "other": "x"}
	large.Status = corev1.PodStatus{Phase: corev1.PodRunning, Message: "message", Reason: "why", QOSClass: corev1.PodQOSBurstable,
		StartTime: new(metav1.Unix(1_800_000_000, 0))}
	enlarge(large)
	s.Put(usual("a"))
	s.Put(large)
	s.Put(usual("z"))
	c := clientOf(t, s, json)
	// check compares a reduced pod with the original.
	check := func(got *corev1.Pod) {
		t.Helper()
		want := s.Pod("ns", "large")
		m := got.ObjectMeta
		if !podspec.IsTooLarge(got) || m.UID != want.UID || m.ResourceVersion != want.ResourceVersion || m.Name != want.Name ||
			m.Namespace != want.Namespace || !m.CreationTimestamp.Equal(&want.CreationTimestamp) {
			t.Errorf("got %.300v", m)
		}
		if len(m.Annotations) != 2 || m.Annotations[corev1.MirrorPodAnnotationKey] != "hash" || len(m.Labels)+len(m.OwnerReferences) > 0 {
			t.Errorf("got the annotations %v, %d labels and %d owners", m.Annotations, len(m.Labels), len(m.OwnerReferences))
		}
		if s := got.Status; s.Phase != corev1.PodRunning || s.Reason != "why" || s.QOSClass != corev1.PodQOSBurstable ||
			!s.StartTime.Equal(want.Status.StartTime) || len(want.Status.Message) < 100 && s.Message != want.Status.Message {
			t.Errorf("got the phase %q, %q, %.300q, %q, %v", s.Phase, s.Reason, s.Message, s.QOSClass, s.StartTime)
		}
		if n := inputweight.SizeOf(got); n > 300_000 {
			t.Errorf("the reduced pod uses %d bytes", n)
		}
	}
	checkList := func(pods []corev1.Pod) {
		t.Helper()
		if len(pods) != 3 || pods[0].Spec.Containers[0].Name != "c" || pods[2].Spec.Containers[0].Name != "c" {
			t.Fatalf("got %d pods", len(pods))
		}
		check(&pods[1])
	}
	got, err := kube.Get[corev1.Pod](t.Context(), c, "ns", "large")
	if err != nil {
		t.Fatal(err)
	}
	check(got)
	list, err := kube.List[corev1.PodList](t.Context(), c, "", ofNode)
	if err != nil {
		t.Fatal(err)
	}
	checkList(list.Items)
	items, _, w, err := kube.WatchList[corev1.Pod](t.Context(), c, "", ofNode)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	checkList(items)
	next := func(kind watch.EventType) *corev1.Pod {
		t.Helper()
		e := <-w.ResultChan()
		p, _ := e.Object.(*corev1.Pod)
		if e.Type != kind || p == nil {
			t.Fatalf("got %v", e.Type)
		}
		return p
	}
	large = s.Pod("ns", "large")
	large.Status.Message = "changed" + large.Status.Message
	s.Put(large)
	check(next(watch.Modified))
	s.Terminate(large, 7)
	if p := next(watch.Modified); p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != 7 {
		t.Errorf("got %.300v", p.ObjectMeta)
	}
	s.Remove(large)
	if p := next(watch.Deleted); p.UID != large.UID {
		t.Errorf("%s was deleted", p.Name)
	}
}

// TestTooManyLargePods checks that a list of pods that use too much memory together is complete. Ended pods are reduced first, then the
// heaviest pods.
func TestTooManyLargePods(t *testing.T) {
	for name, phase := range map[string]corev1.PodPhase{"pending": corev1.PodPending, "failed": corev1.PodFailed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apitest.New(t)
				for i := range 30 {
					p := usual(fmt.Sprintf("p%02d", i))
					p.Status.Phase = phase
					p.Spec.Containers[0].Args = []string{strings.Repeat("x", 1_400_000)}
					s.Put(p)
				}
				largest := usual("largest") // larger than each of the others, and not ended
				largest.Spec.Containers[0].Args = []string{strings.Repeat("x", 1_450_000)}
				s.Put(largest)
				s.Put(usual("usual"))
				l, err := kube.List[corev1.PodList](t.Context(), clientOf(t, s, false), "", ofNode)
				if err != nil || len(l.Items) != 32 {
					t.Fatalf("got %v", err)
				}
				if size := inputweight.SizeOf(l); size > 24<<20 || size < 12<<20 {
					t.Errorf("the list uses %d bytes", size)
				}
				for i := range l.Items {
					p := &l.Items[i]
					if p.UID == "" || p.Status.Phase == "" {
						t.Errorf("got %.300v", p)
					}
					switch reduced := podspec.IsTooLarge(p); p.Name {
					case "usual":
						if reduced {
							t.Error("the usual pod was reduced")
						}
					case "largest":
						if reduced != (phase == corev1.PodPending) {
							t.Errorf("the largest pod was reduced: %t", reduced)
						}
					}
				}
			})
		})
	}
}

// TestLongEventInJSON checks that a watch in JSON that contains a pod that is too long for an event requests a new list, because the next
// watch would have the same event.
func TestLongEventInJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.New(t)
		s.Put(usual("a"))
		c := clientOf(t, s, true)
		_, _, w, err := kube.WatchList[corev1.Pod](t.Context(), c, "", ofNode)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		long := usual("long")
		long.Spec.Containers[0].Args = []string{strings.Repeat("x", 5<<20)}
		s.Put(long)
		e := <-w.ResultChan()
		if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) {
			t.Errorf("got %s, %v", e.Type, err)
		}
		if _, open := <-w.ResultChan(); open {
			t.Error("the watch continues")
		}
		if _, _, _, err := kube.WatchList[corev1.Pod](t.Context(), c, "", ofNode); !errors.Is(err, kube.ErrNoWatchList) {
			t.Errorf("got %v", err)
		}
		if l, err := kube.List[corev1.PodList](t.Context(), c, "", ofNode); err != nil || len(l.Items) != 2 {
			t.Errorf("got %v", err)
		}
	})
}

// TestTooLargeStatusesInList checks that a pod of a list that is too large still shows how it has ended, also if its status was too large.
func TestTooLargeStatusesInList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.New(t)
		for i := range 60 {
			p := usual(fmt.Sprintf("p%02d", i))
			p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, Reason: "why", Message: "m", QOSClass: corev1.PodQOSBurstable}
			if i%2 == 0 {
				p.Status.Message = strings.Repeat("x", 300_000)
			}
			p.Status.ContainerStatuses = make([]corev1.ContainerStatus, 1000)
			p.Spec.Containers[0].Args = []string{strings.Repeat("x", 300_000)}
			s.Put(p)
		}
		l, err := kube.List[corev1.PodList](t.Context(), clientOf(t, s, false), "", ofNode)
		if err != nil || len(l.Items) != 60 {
			t.Fatalf("got %v", err)
		}
		reduced := 0
		for i := range l.Items {
			p := &l.Items[i]
			if s := p.Status; s.Phase != corev1.PodSucceeded || s.Reason != "why" || s.QOSClass != corev1.PodQOSBurstable ||
				s.Message != "m" && i%2 == 1 {
				t.Errorf("%s: got %.300v", p.Name, s)
			}
			if podspec.IsTooLarge(p) && len(p.Status.ContainerStatuses) == 0 {
				reduced++
			}
		}
		if reduced == 0 {
			t.Error("no status was reduced")
		}
	})
}

// TestLargeObjectsInPages checks that the client reads objects that are too long together, although the server cannot send a few of them in
// one answer.
func TestLargeObjectsInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.New(t)
		for i := range 12 {
			p := usual(fmt.Sprintf("p%02d", i))
			p.Spec.Containers[0].Args = []string{strings.Repeat("x", 3<<20)}
			s.Put(p)
		}
		l, err := kube.List[corev1.PodList](t.Context(), clientOf(t, s, false), "", ofNode)
		if err != nil || len(l.Items) != 12 {
			t.Fatalf("got %v", err)
		}
	})
}

// TestTooLargeServices checks that one user's Services do not hide the other Services of a namespace. The node needs the spec.
func TestTooLargeServices(t *testing.T) {
	service := func(name string, change func(*corev1.Service)) *corev1.Service {
		o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.7"}}
		change(o)
		return o
	}
	synctest.Test(t, func(t *testing.T) {
		s := apitest.New(t)
		s.Put(service("usual", func(*corev1.Service) {}))
		s.Put(service("ports", func(o *corev1.Service) { o.Spec.Ports = make([]corev1.ServicePort, 150_000) }))
		for i := range 20 {
			s.Put(service(fmt.Sprintf("s%02d", i), func(o *corev1.Service) {
				o.Labels = map[string]string{"a": strings.Repeat("x", 1_400_000)}
			}))
		}
		l, err := kube.List[corev1.ServiceList](t.Context(), clientOf(t, s, false), "ns", metav1.ListOptions{})
		if err != nil || len(l.Items) != 22 {
			t.Fatalf("got %v", err)
		}
		for _, o := range l.Items {
			if lost := o.Spec.ClusterIP == ""; lost != (o.Name == "ports") {
				t.Errorf("Service %s has the address %q", o.Name, o.Spec.ClusterIP)
			}
		}
	})
}

// TestOthersAreNotReduced checks that an object of another kind that is too large is an error, because its user must not get a part of it.
func TestOthersAreNotReduced(t *testing.T) {
	s := kubetest.New(t, corev1.AddToScheme)
	s.Mux.HandleFunc("GET /api/v1/namespaces/ns/configmaps/large", func(w http.ResponseWriter, r *http.Request) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "large"}, Data: map[string]string{}}
		for i := range 300_000 {
			m.Data[fmt.Sprint(i)] = ""
		}
		s.Write(w, r, 200, m)
	})
	got, err := kube.Get[corev1.ConfigMap](t.Context(), client(t, s), "ns", "large")
	if err == nil || !strings.Contains(err.Error(), inputweight.ErrTooHeavy.Error()) {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestMarkOfUsers checks that a user cannot mark a pod as too large.
func TestMarkOfUsers(t *testing.T) {
	p := usual("p")
	p.Annotations = map[string]string{keys.TooLarge: ""}
	if podspec.IsTooLarge(p) {
		t.Error("a pod with containers is too large")
	}
}
