package link

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/kube/kubetest"
	"github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/internal/podtest"
)

// A whole is a sink that signals the first complete set of pods.
type whole struct {
	pods chan int
}

func (w whole) Set(_ context.Context, _ string, pods []desired.SourcePod, _ []desired.Problem) error {
	w.pods <- len(pods)
	return nil
}
func (whole) ReportFailure(string, []desired.Problem) {}
func (whole) Update(context.Context, string, []desired.SourcePod, []desired.RemovedPod) error {
	return nil
}

// TestThinLink checks that a node gets its pods over a link that needs minutes to transfer them. The list is requested once. It takes
// little longer than the transfer of its bytes. Meanwhile, the lease is renewed on the same connection.
func TestThinLink(t *testing.T) {
	for _, c := range []struct {
		name  string
		line  *kubetest.Line
		bytes int
	}{
		{"9.6 kbit/s, 2 s round trip, 5 % loss", &kubetest.Line{Rate: 1200, Delay: time.Second, Loss: 0.05, Seed: 1}, 100 << 10},
		{"another loss", &kubetest.Line{Rate: 1200, Delay: time.Second, Loss: 0.05, Seed: 7}, 100 << 10},
		{"9.6 kbit/s, 0.6 s round trip", &kubetest.Line{Rate: 1200, Delay: 300 * time.Millisecond}, 20 << 10},
		{"8 s round trip", &kubetest.Line{Rate: 20000, Delay: 4 * time.Second, Loss: 0.02, Seed: 3}, 100 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { thin(t, c.line, c.bytes) })
		})
	}
}

// podsOf returns pods with the given total size. Their content is incompressible.
func podsOf(bytes int) *corev1.PodList {
	list := &corev1.PodList{}
	list.ResourceVersion = "7"
	random := rand.New(rand.NewPCG(1, 2))
	for n := 0; list.Size() < bytes; n++ {
		text := make([]byte, 0, 2000)
		for len(text) < 2000 {
			text = append(text, byte('!'+random.IntN(90)))
		}
		p := podtest.New(fmt.Sprint("p", n), podtest.UID(fmt.Sprint("u", n)), podtest.Annotation("a", string(text)),
			podtest.Node("n"), podtest.Image("i"))
		p.ResourceVersion = "7"
		list.Items = append(list.Items, *p)
	}
	return list
}

// initialEvents returns a watch whose initial events are the pods.
func initialEvents(pods *corev1.PodList) <-chan watch.Event {
	events := make(chan watch.Event, len(pods.Items)+1)
	for i := range pods.Items {
		events <- watch.Event{Type: watch.Added, Object: &pods.Items[i]}
	}
	end := metav1.ObjectMeta{ResourceVersion: pods.ResourceVersion, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	events <- watch.Event{Type: watch.Bookmark, Object: &corev1.Pod{ObjectMeta: end}}
	return events
}

func thin(t *testing.T, line *kubetest.Line, bytes int) {
	time.Sleep(2 * year)
	w := &timedWorld{world: &world{t: t, dir: t.TempDir(), meta: &memory{values: map[string]string{}}, now: time.Now,
		who: map[string]int{}}, line: line}
	w.server = kubetest.NewOn(t, line, corev1.AddToScheme, coordinationv1.AddToScheme)
	pods, lists, renewed := podsOf(bytes), atomic.Int32{}, atomic.Int32{}
	var last, longest atomic.Int64 // times between two renewals at the server
	w.server.Mux.HandleFunc("GET /api/v1/pods", func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			lists.Add(1)
			w.server.Watch(rw, r, initialEvents(pods))
			return
		}
		w.server.Watch(rw, r, make(chan watch.Event))
	})
	w.server.Mux.HandleFunc("PATCH /apis/coordination.k8s.io/v1/namespaces/ns/leases/n", func(rw http.ResponseWriter, r *http.Request) {
		renewed.Add(1)
		now := time.Now().UnixNano()
		if before := last.Swap(now); before != 0 {
			longest.Store(max(longest.Load(), now-before))
		}
		w.server.Write(rw, r, 200, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n"}})
	})
	cfg := w.config()
	cfg.Log, cfg.Dial, cfg.Rotate = slog.New(slog.DiscardHandler), line.Dial, false
	cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now().Add(-time.Hour), time.Now().Add(year))
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	bare, err := line.TransferTime(bytes)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	l, stop := w.boot(cfg)
	have := whole{make(chan int, 10)}
	pod, err := source.NewAPI(source.APIConfig{Client: l.Client(), Node: "n", Sink: have, Retry: l.Changed(), Log: cfg.Log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	go func() { _ = pod.Run(ctx); ended <- struct{}{} }()
	go func() {
		for sleep(ctx, 10*time.Second) {
			_, _ = kube.Patch[coordinationv1.Lease](kube.WithBusyTimeout(kube.WithSilenceTimeout(ctx, 8*time.Second), 10*time.Second), l.Client(),
				"ns", "n", types.MergePatchType, []byte(`{"spec":{"holderIdentity":"n"}}`), metav1.PatchOptions{})
		}
		ended <- struct{}{}
	}()
	select {
	case n := <-have.pods:
		took := time.Since(began)
		t.Logf("%d pods after %s, with a bare transfer of %s; %d lists, %d renewals, %d bytes received", n, took, bare,
			lists.Load(), renewed.Load(), line.Received.Load())
		// In addition to the transfer, the connection takes six round trips and the time to send the certificates.
		if most := max(bare*3/2, bare+12*line.Delay+10*time.Second); n != len(pods.Items) || took > most || lists.Load() != 1 {
			t.Errorf("want one list within %s", most)
		}
	case <-time.After(time.Hour):
		t.Errorf("no pods after an hour: %d lists, %+v", lists.Load(), l.State())
	}
	time.Sleep(5 * time.Minute)
	if s := l.State(); s.Phase != Up || time.Since(s.Since) < 5*time.Minute {
		t.Errorf("the link did not stay up: %+v", s)
	}
	if gap := time.Duration(longest.Load()); renewed.Load() < 5 || gap > 35*time.Second {
		t.Errorf("%d renewals, %s apart at most: a lease of 40 s has lapsed", renewed.Load(), gap)
	}
	cancel()
	l.client.CloseConnections()
	<-ended
	<-ended
	stop()
}
