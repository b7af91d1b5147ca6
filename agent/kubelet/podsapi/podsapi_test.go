package podsapi

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/internal/socket"
)

const window = 64 << 10 // a flow-control window of this size does not grow

// A node is a set of pods that the tests change.
type node struct {
	mu       sync.Mutex
	complete bool
	pods     map[types.UID]*v1.Pod
	versions map[types.UID]uint64
	version  uint64
	news     chan struct{}
}

func newNode(pods ...*v1.Pod) *node {
	n := &node{complete: true, pods: map[types.UID]*v1.Pod{}, versions: map[types.UID]uint64{}, version: 1, news: make(chan struct{})}
	for _, p := range pods {
		n.put(p)
	}
	return n
}

func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.news)
	n.news = make(chan struct{})
}

func (n *node) put(p *v1.Pod) {
	n.change(func() {
		n.version++
		n.pods[p.UID], n.versions[p.UID] = p, n.version
	})
}

func (n *node) remove(uid types.UID) { n.change(func() { delete(n.pods, uid) }) }

func (n *node) Complete() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.complete
}

func (n *node) ChangedSince(than uint64) (out []*v1.Pod, version uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid, p := range n.pods {
		if n.versions[uid] > than {
			out = append(out, p)
		}
	}
	return out, n.version
}

func (n *node) Find(uid types.UID) *v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[uid]
}

func (n *node) IsWanted(uid types.UID) bool { return n.Find(uid) != nil }

func (n *node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.news
}

func pod(name, label string) *v1.Pod {
	return podtest.New(name, podtest.Label("l", label), podtest.Phase(v1.PodRunning))
}

// serve serves the pods of n. It returns the server and a function that connects another client to it.
func serve(t *testing.T, n *node, sendTime time.Duration) (*Server, func() api.PodsClient) {
	t.Helper()
	root := t.TempDir()
	cfg := &config.Config{}
	cfg.Dirs.Root = root
	s, err := Open(Config{Config: cfg, Sockets: socket.New(socket.Config{Log: slog.New(slog.DiscardHandler)}), Pods: n})
	if err != nil {
		t.Fatal(err)
	}
	s.sendTime = sendTime
	path := filepath.Join(root, "pods-api", "pods-api.sock")
	if fi, err := os.Lstat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatal(fi, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, func() api.PodsClient {
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return api.NewPodsClient(conn)
	}
}

func value(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Counter.GetValue()
}

// This helper returns the next event as text.
func tell(t *testing.T, from grpc.ServerStreamingClient[api.WatchPodsEvent]) string {
	t.Helper()
	e, err := from.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if e.Pod == nil {
		return e.Type.String()
	}
	p := &v1.Pod{}
	if err := p.Unmarshal(e.Pod); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s/%s %s %s", e.Type, p.Namespace, p.Name, p.Labels["l"], p.Status.Phase))
}

// TestListAndGet checks that a client gets complete pods. A call for an unknown pod returns an error. A call gets no response before the
// node's list of pods is complete.
func TestListAndGet(t *testing.T) {
	n := newNode(pod("b", "1"), pod("a", "2"))
	s, connect := serve(t, n, sendTime)
	client := connect()
	list, err := client.ListPods(t.Context(), &api.ListPodsRequest{})
	if err != nil || len(list.Pods) != 2 {
		t.Fatal(list, err)
	}
	var p v1.Pod
	if err := p.Unmarshal(list.Pods[0]); err != nil || p.Name != "a" || p.Labels["l"] != "2" || p.Status.Phase != v1.PodRunning {
		t.Errorf("the first pod is %+v, %v", p, err)
	}
	got, err := client.GetPod(t.Context(), &api.GetPodRequest{PodUID: "b"})
	if err != nil {
		t.Fatal(err)
	}
	p = v1.Pod{}
	if err := p.Unmarshal(got.Pod); err != nil || p.Name != "b" {
		t.Errorf("got %+v, %v", p, err)
	}
	if _, err := client.GetPod(t.Context(), &api.GetPodRequest{PodUID: "c"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown pod: %v", err)
	}
	n.change(func() { n.complete = false })
	_, errList := client.ListPods(t.Context(), &api.ListPodsRequest{})
	_, errGet := client.GetPod(t.Context(), &api.GetPodRequest{PodUID: "b"})
	w, err := client.WatchPods(t.Context(), &api.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, errWatch := w.Recv()
	for _, err := range []error{errList, errGet, errWatch} {
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("before the list of pods is complete: %v", err)
		}
	}
	for _, c := range []struct {
		name string
		got  float64
		want float64
	}{
		{"all", value(t, s.counts.all.WithLabelValues("v1alpha1", "OK")), 2},
		{"all that failed", value(t, s.counts.all.WithLabelValues("v1alpha1", "FailedPrecondition")), 3},
		{"list", value(t, s.counts.list.WithLabelValues("v1alpha1", "OK")), 1},
		{"get", value(t, s.counts.get.WithLabelValues("v1alpha1", "NotFound")), 1},
		{"watch", value(t, s.counts.watch.WithLabelValues("v1alpha1", "FailedPrecondition")), 1},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v calls counted, not %v", c.name, c.got, c.want)
		}
	}
}

// TestWatch checks that a watcher first gets all pods, then an event that marks the end of this list, and then each change.
func TestWatch(t *testing.T) {
	n := newNode(pod("a", "1"))
	_, connect := serve(t, n, sendTime)
	w, err := connect().WatchPods(t.Context(), &api.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want ...string) {
		t.Helper()
		for _, text := range want {
			if got := tell(t, w); got != text {
				t.Errorf("got %q, not %q", got, text)
			}
		}
	}
	expect("ADDED default/a 1 Running", "INITIAL_SYNC_COMPLETE")
	n.put(pod("b", "1"))
	expect("ADDED default/b 1 Running")
	n.put(pod("a", "2"))
	expect("MODIFIED default/a 2 Running")
	n.remove("a")
	expect("DELETED default/a")
	n.change(func() {}) // no pod has changed, so no event is sent
	n.put(pod("a", "3"))
	expect("ADDED default/a 3 Running")
}

// TestCrowdOfWatchers checks that the number of watchers on all connections is limited. When one watcher ends, another one can start.
func TestCrowdOfWatchers(t *testing.T) {
	_, connect := serve(t, newNode(), sendTime)
	ctx, stop := context.WithCancel(t.Context())
	for i := range maxWatchers {
		to := t.Context()
		if i == 0 {
			to = ctx
		}
		client := connect()
		w, err := client.WatchPods(to, &api.WatchPodsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for { // all clients share the limit of calls per second
			_, err := w.Recv()
			if err == nil {
				break
			}
			if status.Code(err) != codes.ResourceExhausted {
				t.Fatal(err)
			}
			if w, err = client.WatchPods(to, &api.WatchPodsRequest{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	client := connect()
	try := func() error {
		w, err := client.WatchPods(t.Context(), &api.WatchPodsRequest{})
		if err != nil {
			return err
		}
		_, err = w.Recv()
		return err
	}
	if err := try(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more watcher: %v", err)
	}
	stop()
	for err := try(); err != nil; err = try() {
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
}

// TestSlowWatcher checks that a watcher is disconnected if it does not read.
func TestSlowWatcher(t *testing.T) {
	n := newNode()
	big := strings.Repeat("x", 100<<10) // more than the window of a connection
	for i := range 20 {
		n.put(pod(fmt.Sprint(i), big))
	}
	s, connect := serve(t, n, 200*time.Millisecond)
	w, err := connect().WatchPods(t.Context(), &api.WatchPodsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Header(); err != nil { // the server is sending the first event
		t.Fatal(err)
	}
	s.watchers.group.Wait() // the watch has ended
	for err == nil {
		_, err = w.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the slow watcher ended with %v", err)
	}
	if got := value(t, s.counts.dropped); got != 1 {
		t.Errorf("%v ends are counted", got)
	}
}

// TestOff checks that Open creates neither a socket nor a server if the feature gate is off.
func TestOff(t *testing.T) {
	root := t.TempDir()
	cfg := &config.Config{}
	cfg.Dirs.Root, cfg.Kubelet.FeatureGates = root, map[string]bool{"PodsAPI": false}
	s, err := Open(Config{Config: cfg})
	if s != nil || err != nil {
		t.Fatal(s, err)
	}
	if err := s.Run(t.Context()); err != nil || s.Collectors() != nil || s.Close() != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(root, "pods-api")); !os.IsNotExist(err) {
		t.Error(err)
	}
}
