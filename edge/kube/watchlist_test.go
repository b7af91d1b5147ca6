package kube_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/kube/kubetest"
)

var ofNode = metav1.ListOptions{FieldSelector: "spec.nodeName=n"}

// usual returns a typical running pod with the token volume of a service account.
func usual(name string) *corev1.Pod {
	p := bound(name)
	p.UID = uuid.NewUUID()
	p.Labels = map[string]string{"app": "demo", "pod-template-hash": "5d4f8c7b9"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "demo-5d4f8c7b9", UID: uuid.NewUUID()}}
	token := "kube-api-access-" + name
	sources := []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
			Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
	}
	projected := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}
	p.Spec.Volumes = []corev1.Volume{{Name: token, VolumeSource: projected}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "registry.example.com/demo/app:v1.2.3", Args: []string{"serve", ":8080"},
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File", ImagePullPolicy: "IfNotPresent",
		VolumeMounts: []corev1.VolumeMount{{Name: token, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}}}
	for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: "Exists", Effect: "NoExecute",
			TolerationSeconds: new(int64(300))})
	}
	now := metav1.Now()
	for _, t := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: "True", LastTransitionTime: now})
	}
	p.Status.Phase, p.Status.PodIP, p.Status.HostIP, p.Status.StartTime = "Running", "10.42.0.7", "192.168.1.7", &now
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: true, Started: new(true), Image: p.Spec.Containers[0].Image,
		State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		ImageID:     "registry.example.com/demo/app@sha256:" + strings.Repeat("0123456789abcdef", 4),
		ContainerID: "containerd://" + strings.ReplaceAll(string(uuid.NewUUID()+uuid.NewUUID()), "-", "")}}
	return p
}

// TestWatchList checks that one compressed response delivers all pods and then their changes.
func TestWatchList(t *testing.T) {
	for _, pods := range []int{30, 100} {
		t.Run(fmt.Sprint(pods), func(t *testing.T) { watchList(t, pods) })
	}
}

func watchList(t *testing.T, pods int) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.New(t)
		for i := range pods {
			s.Put(usual(fmt.Sprintf("p%03d", pods-1-i)))
		}
		received := func(read func(c *kube.Client)) int64 {
			c := s.Client(t)
			_, before := s.Bytes()
			read(c)
			_, after := s.Bytes()
			return after - before
		}
		listed := received(func(c *kube.Client) {
			if l, err := kube.List[corev1.PodList](t.Context(), c, "", ofNode); err != nil || len(l.Items) != pods {
				t.Error(err)
			}
		})
		streamed := received(func(c *kube.Client) {
			items, version, w, err := kube.WatchList[corev1.Pod](t.Context(), c, "", ofNode)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if len(items) != pods || items[0].Name != "p000" || items[pods-1].Name != fmt.Sprintf("p%03d", pods-1) || version == "" {
				t.Errorf("%d pods, version %q", len(items), version)
			}
			for _, change := range []func(){func() { s.Put(bound("new")) }, func() { s.Remove(bound("p000")) }} {
				change()
				if e := <-w.ResultChan(); e.Type != watch.Added && e.Type != watch.Deleted {
					t.Errorf("got %v", e.Type)
				}
			}
		})
		t.Logf("%d pods: %d bytes, a list has %d", pods, streamed, listed)
		if streamed*4 > listed {
			t.Errorf("%d pods: %d bytes, a list has %d", pods, streamed, listed)
		}
	})
}

// TestNoWatchList checks that an incomplete list is an error. The caller gets no part of the list.
func TestNoWatchList(t *testing.T) {
	event := func(kind, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object) }
	pod := func(name, more string) string {
		return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"ns","name":%q,"resourceVersion":"5"%s}}`, name, more)
	}
	added := event("ADDED", pod("a", ""))
	large := event("ADDED", pod("a", `,"annotations":{"x":"`+strings.Repeat("x", 1<<20)+`"}`))
	for name, x := range map[string]struct {
		body        string
		status      int
		ends        bool // whether the server ends the watch
		repeats     bool // whether the server sends the body every ten seconds
		unsupported bool
	}{
		"bookmarks for ever":  {body: event("BOOKMARK", pod("", "")), status: 200, repeats: true, unsupported: true},
		"deletions for ever":  {body: event("DELETED", pod("a", "")), status: 200, repeats: true, unsupported: true},
		"rejected":            {body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`, status: 422, unsupported: true},
		"forbidden":           {body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, status: 403, unsupported: true},
		"server error":        {body: `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`, status: 500},
		"not known":           {body: added, status: 200, unsupported: true},
		"other bookmarks":     {body: added + event("BOOKMARK", pod("", "")), status: 200, unsupported: true},
		"cut off":             {body: added, status: 200, ends: true},
		"cut off in an event": {body: added + added[:50], status: 200, ends: true},
		"error event":         {body: added + event("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410}`), status: 200},
		"too much":            {body: strings.Repeat(large, 5), status: 200, unsupported: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apitest.New(t)
				answer := func(w http.ResponseWriter, r *http.Request) bool {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(x.status)
					_, _ = io.WriteString(w, x.body)
					_ = http.NewResponseController(w).Flush()
					for x.repeats && r.Context().Err() == nil {
						select {
						case <-time.After(10 * time.Second):
						case <-r.Context().Done():
						}
						_, _ = io.WriteString(w, x.body)
						_ = http.NewResponseController(w).Flush()
					}
					if x.status == 200 && !x.ends {
						<-r.Context().Done()
					}
					return true
				}
				s.Fault.Store(&answer)
				items, _, w, err := kube.WatchList[corev1.Pod](t.Context(), s.Client(t), "", ofNode)
				if err == nil || w != nil || items != nil || errors.Is(err, kube.ErrNoWatchList) != x.unsupported {
					t.Errorf("got %d items, %v", len(items), err)
				}
			})
		})
	}
}

// TestCompressedWatchBombs checks that a small compressed response does not use much memory.
func TestCompressedWatchBombs(t *testing.T) {
	for name, begin := range map[string]string{
		"no end":         `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"`,
		"between events": "",
		"its length":     "\x00\xff\xff\xff",
	} {
		t.Run(name, func(t *testing.T) {
			s := kubetest.New(t, corev1.AddToScheme)
			s.Mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Accept-Encoding") != "gzip" {
					t.Error("the client does not accept compressed watches")
				}
				w.Header().Set("Content-Type", "application/json;stream=watch")
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				_, _ = io.WriteString(z, begin)
				block := []byte(strings.Repeat("x", 1<<20))
				for range 64 {
					if _, err := z.Write(block); err != nil {
						return
					}
				}
				_ = z.Close()
			})
			c := client(t, s)
			peak := measure(func() {
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						if _, _, _, err := kube.WatchList[corev1.Pod](t.Context(), c, "", metav1.ListOptions{}); err == nil {
							t.Error("a bomb is a list")
						}
					})
				}
				wg.Wait()
			})
			if peak > 48<<20 {
				t.Errorf("it takes %d MiB", peak>>20)
			}
		})
	}
}
