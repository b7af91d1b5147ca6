package kube_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/kube/kubetest"
	"github.com/islet-edge/islet/internal/inputweight"
)

// TestLargeAnswersWait checks that large responses are decoded one after the other. A small response is decoded while a large one is
// incomplete.
func TestLargeAnswersWait(t *testing.T) {
	s := kubetest.New(t, corev1.AddToScheme, coordinationv1.AddToScheme)
	large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Data: map[string]string{"a": strings.Repeat("x", 3<<20)}}
	stuck, goOn := make(chan struct{}), make(chan struct{})
	var first sync.Once
	s.Mux.HandleFunc("GET /api/v1/namespaces/ns/configmaps/{name}", func(w http.ResponseWriter, r *http.Request) {
		began := false
		first.Do(func() { began = true })
		if began {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"a":"`+strings.Repeat("x", 1<<20))
			w.(http.Flusher).Flush()
			close(stuck)
			<-goOn
			fmt.Fprint(w, `"}}`)
			return
		}
		s.Write(w, r, 200, large.DeepCopy())
	})
	s.Mux.HandleFunc("GET /apis/coordination.k8s.io/v1/namespaces/ns/leases/l", func(w http.ResponseWriter, r *http.Request) {
		s.Write(w, r, 200, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}})
	})
	c := client(t, s)
	var arrived atomic.Int32
	var wg sync.WaitGroup
	get := func() {
		defer wg.Done()
		got, err := kube.Get[corev1.ConfigMap](kube.WithSilenceTimeout(t.Context(), 5*time.Minute), c, "ns", "large")
		if err != nil || len(got.Data["a"]) < 1<<20 {
			t.Errorf("got %v", err)
		}
		arrived.Add(1)
	}
	wg.Add(1)
	go get()
	<-stuck
	const waiting = 4
	wg.Add(waiting)
	for range waiting {
		go get()
	}
	for range 5 {
		if _, err := kube.Get[coordinationv1.Lease](t.Context(), c, "ns", "l"); err != nil {
			t.Errorf("a small answer has to wait: %v", err)
		}
	}
	if n := arrived.Load(); n > 0 {
		t.Errorf("%d large answers arrived beside another one", n)
	}
	close(goOn)
	wg.Wait()
}

// bombers returns handlers whose responses are small on the network and large when decoded.
func bombers(s *kubetest.Server) map[string]func(w http.ResponseWriter) {
	gzipped := func(mediaType, begin, repeated string, times int, end ...string) func(http.ResponseWriter) {
		packed := sync.OnceValue(func() []byte {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write([]byte(begin))
			block := []byte(strings.Repeat(repeated, (64<<10)/len(repeated)))
			for range times * len(repeated) / len(block) {
				_, _ = z.Write(block)
			}
			_, _ = z.Write([]byte(strings.Join(end, "")))
			_ = z.Close()
			return b.Bytes()
		})
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", mediaType)
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed())
		}
	}
	field := func(tag, value string) string { return tag + string(rune(len(value))) + value }
	envelope := func(kind string, size int) string {
		head := field("\x0a", field("\x0a", "v1")+field("\x12", kind)) + "\x12"
		return "k8s\x00" + head + string(binary.AppendUvarint(nil, uint64(size)))
	}
	containers := "k8s\x00" + field("\x0a", field("\x12", "Pod")) + "\x12\x84\x80\x40\x12\x80\x80\x40" // 1 MiB of containers in a spec
	const mib = 1 << 20
	return map[string]func(http.ResponseWriter){
		"16 MiB of spaces":     gzipped("application/json", "", " ", 16*mib),
		"empty pods":           gzipped("application/json", `{"apiVersion":"v1","kind":"PodList","items":[{}`, ",{}", mib/4, "]}"),
		"null pods":            gzipped("application/json", `{"apiVersion":"v1","kind":"PodList","items":[null`, ",null", mib/4, "]}"),
		"no apiVersion":        gzipped("application/json", `{"kind":"Pod","spec":{"containers":[null`, ",null", mib/4, "]}}"),
		"neither":              gzipped("application/json", `{"items":[null`, ",null", mib/4, "]}"),
		"nested":               gzipped("application/json", `{"apiVersion":"v1","kind":"PodList","items":`, "[", 4*mib),
		"protobuf of nothing":  gzipped("application/vnd.kubernetes.protobuf", envelope("PodList", 4*mib), "\x12\x00", 2*mib),
		"protobuf, no version": gzipped("application/vnd.kubernetes.protobuf", containers, "\x12\x00", mib/2),
		"another kind":         gzipped("application/vnd.kubernetes.protobuf", envelope("NodeList", 4*mib), "\x12\x00", 2*mib),
		"YAML":                 gzipped("application/yaml", "items:\n", "- {}\n", mib),
		"an error": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
			gzipped("application/json", `"`, "x", 16*mib)(w)
		},
		"long headers": func(w http.ResponseWriter) {
			for n := range 1000 {
				w.Header().Set(fmt.Sprint("X-", n), strings.Repeat("x", 1000))
			}
		},
	}
}

// TestBombs checks that concurrent responses and watch events use little more memory than the budget, for any number of them. Without
// ISLET_TEST_LONG only some of the responses are sent for an object too, and the others only for a list.
func TestBombs(t *testing.T) {
	for name := range bombers(nil) {
		t.Run(name, func(t *testing.T) {
			s := kubetest.New(t, corev1.AddToScheme)
			send := bombers(s)[name]
			s.Mux.HandleFunc("/api/v1/", func(w http.ResponseWriter, _ *http.Request) { send(w) })
			c := client(t, s)
			objects, lists := 0, 1
			switch {
			case name == "empty pods", os.Getenv("ISLET_TEST_LONG") != "":
				objects, lists = 2, 2
			case strings.HasPrefix(name, "protobuf"), name == "nested", name == "no apiVersion", name == "an error", name == "long headers":
				objects = 1
			}
			peak := measure(func() {
				var wg sync.WaitGroup
				for range objects {
					wg.Go(func() {
						if _, err := kube.Get[corev1.PodList](t.Context(), c, "", "x"); err == nil {
							t.Error("a bomb is accepted as an object")
						}
					})
				}
				for range lists {
					wg.Go(func() {
						if _, err := kube.List[corev1.PodList](t.Context(), c, "", metav1.ListOptions{}); err == nil {
							t.Error("a bomb is accepted as a list")
						}
					})
				}
				wg.Wait()
			})
			if peak > 64<<20 {
				t.Errorf("uses %d MiB", peak>>20)
			}
		})
	}
}

// TestWatchBombs repeats TestBombs with watch events. Without ISLET_TEST_LONG only one kind of events is sent to several watches at once.
func TestWatchBombs(t *testing.T) {
	for name, event := range map[string]struct{ begin, repeated string }{
		"no end":          {`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"`, "x"},
		"between events":  {"", "x"},
		"empty things":    {`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{}`, ",{}"},
		"protobuf length": {"\x7f\xff\xff\xff", "x"},
		"its first byte":  {"\x00\xff\xff\xff", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			s := kubetest.New(t, corev1.AddToScheme)
			s.Mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json;stream=watch")
				fmt.Fprint(w, event.begin)
				block := []byte(strings.Repeat(event.repeated, 1<<16))
				for range 1 << 10 {
					if _, err := w.Write(block); err != nil {
						return
					}
				}
			})
			c := client(t, s)
			watches := 4
			if name != "empty things" && os.Getenv("ISLET_TEST_LONG") == "" {
				watches = 1
			}
			peak := measure(func() {
				var wg sync.WaitGroup
				for range watches {
					wg.Go(func() {
						w, err := kube.Watch[corev1.Pod](t.Context(), c, "", metav1.ListOptions{})
						if err != nil {
							t.Error(err)
							return
						}
						defer w.Stop()
						for e := range w.ResultChan() {
							if e.Type != watch.Error {
								t.Errorf("got %v", e.Type)
							}
						}
					})
				}
				wg.Wait()
			})
			if peak > 48<<20 {
				t.Errorf("uses %d MiB", peak>>20)
			}
		})
	}
}

// TestStuckEvent checks that a watch with an incomplete event ends after a timeout. Otherwise the event would keep its share of the budget,
// and other large responses would wait for it. A watch without an incomplete event continues.
func TestStuckEvent(t *testing.T) {
	json := `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"`
	for name, begin := range map[string]string{
		"protobuf": "\x00\x20\x00\x00k8s", "JSON": json + strings.Repeat("x", 1<<20),
		"JSON of escapes":       json + "x" + strings.Repeat(`\n`, 1<<19),
		"JSON of escapes, even": json + strings.Repeat(`\n`, 1<<19),
	} {
		t.Run(name, func(t *testing.T) {
			s := kubetest.New(t, corev1.AddToScheme)
			end := make(chan struct{})
			t.Cleanup(func() { close(end) })
			s.Mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json;stream=watch")
				fmt.Fprint(w, begin)
				w.(http.Flusher).Flush()
				<-end
			})
			s.Mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json;stream=watch")
				w.(http.Flusher).Flush()
				<-end
			})
			s.Mux.HandleFunc("GET /api/v1/namespaces/ns/configmaps/large", func(w http.ResponseWriter, r *http.Request) {
				s.Write(w, r, 200, &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("x", 1<<20)}})
			})
			c := client(t, s)
			ctx := kube.WithBusyTimeout(t.Context(), 300*time.Millisecond)
			idle, err := kube.Watch[corev1.Node](ctx, c, "", metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer idle.Stop()
			w, err := kube.Watch[corev1.Pod](ctx, c, "", metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			for e := range w.ResultChan() {
				t.Errorf("got %v", e)
			}
			soon, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := kube.Get[corev1.ConfigMap](soon, c, "ns", "large"); err != nil {
				t.Error(err)
			}
			select {
			case e, open := <-idle.ResultChan():
				t.Errorf("the idle watch ended: %v, %v", e, open)
			default:
			}
		})
	}
}

// TestEvents checks that JSON events are separated correctly for any white space between them. An event that is too large ends the watch
// with an error.
func TestEvents(t *testing.T) {
	s := kubetest.New(t, corev1.AddToScheme)
	s.Mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json;stream=watch")
		for n := range 3 {
			fmt.Fprintf(w, " {\"type\":\"ADDED\",\n\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"p%d\",\"annotations\":{\"a\":\"}\\\"{ %s\"}}}}", n, strings.Repeat("x", n*300_000))
		}
		fmt.Fprint(w, "\n{\"type\":\"ADDED\",\"object\":{\"kind\":\"Node\",\"apiVersion\":\"v1\",\"spec\":{\"taints\":[{}"+
			strings.Repeat(",{}", 300_000)+"]}}}")
	})
	w, err := kube.Watch[corev1.Pod](t.Context(), client(t, s), "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for n := range 3 {
		p, ok := (<-w.ResultChan()).Object.(*corev1.Pod)
		if !ok || p.Name != fmt.Sprint("p", n) || len(p.Annotations["a"]) != 4+n*300_000 {
			t.Errorf("event %d is %.200v", n, p)
		}
	}
	e := <-w.ResultChan()
	if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !strings.Contains(err.Error(), inputweight.ErrTooHeavy.Error()) {
		t.Errorf("got %v, %v", e.Type, err)
	}
}

// measure runs f and returns the maximum growth of the heap during the run, in bytes.
func measure(f func()) uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, peak := m.HeapAlloc, uint64(0)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			runtime.GC() // count only reachable memory
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
	}()
	f()
	close(done)
	<-ended
	return peak - min(peak, before)
}

// TestNotServer checks that a web page or a redirect is an error for every request. The node's token is not sent to the target of a
// redirect.
func TestNotServer(t *testing.T) {
	page := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(status)
			fmt.Fprint(w, "<html>Log in</html>")
		}
	}
	var followed atomic.Int32
	for name, answer := range map[string]http.HandlerFunc{
		"a page": page(200), "a login": page(401), "not found": page(404),
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/portal", http.StatusFound) },
		"other text": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"welcome":true}`) },
	} {
		t.Run(name, func(t *testing.T) {
			s := kubetest.New(t, corev1.AddToScheme)
			s.Mux.HandleFunc("/portal", func(http.ResponseWriter, *http.Request) { followed.Add(1) })
			s.Mux.HandleFunc("/api/", answer)
			var told error
			var bad atomic.Bool
			bad.Store(true)
			c, err := kube.New(kube.Config{
				Rest: func() (*rest.Config, error) {
					to := *s.RESTConfig()
					to.Host += map[bool]string{true: "/api"}[bad.Load()] // /api/readyz
					return &to, nil
				},
				AfterRequest: func(_ int, err error) { told = err },
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Ready(t.Context()); !errors.Is(err, kube.ErrNotServer) {
				t.Errorf("accepted as an API server: %v", err)
			}
			bad.Store(false)
			if _, err := c.Ready(t.Context()); err != nil {
				t.Errorf("an API server is not: %v", err)
			}
			_, err = kube.Get[corev1.Pod](context.Background(), c, "ns", "a")
			if name != "other text" && (!errors.Is(err, kube.ErrNotServer) || !errors.Is(told, kube.ErrNotServer) || kube.IsAnswer(err)) {
				t.Errorf("got %v, After received %v", err, told)
			}
			if err == nil || followed.Load() > 0 {
				t.Errorf("got %v, %d redirects were followed", err, followed.Load())
			}
		})
	}
}
