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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/kube/kubetest"
)

var ofNode = metav1.ListOptions{FieldSelector: "spec.nodeName=n"}

// TestWatchList: one compressed answer has all pods, and then their changes.
func TestWatchList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.New(t)
		const pods = 30
		for i := range pods {
			p := bound(fmt.Sprintf("p%02d", pods-1-i))
			p.Annotations = map[string]string{"text": strings.Repeat("of some length ", 100)}
			s.Put(p)
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
			if len(items) != pods || items[0].Name != "p00" || items[pods-1].Name != "p29" || version == "" {
				t.Errorf("%d pods, version %q", len(items), version)
			}
			for _, change := range []func(){func() { s.Put(bound("new")) }, func() { s.Remove(bound("p00")) }} {
				change()
				if e := <-w.ResultChan(); e.Type != watch.Added && e.Type != watch.Deleted {
					t.Errorf("got %v", e.Type)
				}
			}
		})
		if streamed*5 > listed {
			t.Errorf("%d bytes for 30 pods, a list has %d", streamed, listed)
		}
	})
}

// TestNoWatchList: an answer that cannot be used as a list is an error, never a part of the objects.
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
		ends        bool // the server ends the watch
		unsupported bool
	}{
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

// TestCompressedWatchBombs: a small compressed answer does not become a large one in memory.
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
