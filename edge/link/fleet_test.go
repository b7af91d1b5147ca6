package link

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/node"
	"github.com/islet-edge/islet/edge/outbox"
	"github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

// TestReturnOfAFleet checks how nodes reconnect to an API server. After an outage of an hour, the reconnections are distributed over a few
// minutes. After an outage of a few seconds, all nodes reconnect within seconds. Each node consists only of the parts of edge that send
// requests. ISLET_FLEET is the number of nodes.
func TestReturnOfAFleet(t *testing.T) {
	nodes := 40
	if n, err := strconv.Atoi(os.Getenv("ISLET_FLEET")); err == nil {
		nodes = n
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nodes)
		defer f.stop()
		time.Sleep(2 * time.Minute)
		if up := f.up(); up != nodes {
			t.Fatalf("%d of %d nodes joined", up, nodes)
		}
		took, peak, mean, total := f.outage(time.Hour)
		t.Logf("after an hour: all %d are back after %s, %d requests, peak %d a second, mean %.0f; heap %d MiB", nodes, took,
			total, peak, mean, heap())
		if float64(peak) > 3*mean {
			t.Errorf("the peak is %.1f times the mean", float64(peak)/mean)
		}
		if took > 3*time.Minute {
			t.Errorf("the last is back after %s", took)
		}
		time.Sleep(time.Minute) // the link must be up for a while, or it still counts as down
		took, peak, mean, total = f.outage(15 * time.Second)
		t.Logf("after 15 s: all %d are back after %s, %d requests, peak %d a second, mean %.0f", nodes, took, total, peak, mean)
		if took > 6*time.Second {
			t.Errorf("a short outage is followed after %s", took)
		}
	})
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse >> 20
}

// A fleet is a number of nodes with one API server.
type fleet struct {
	t      *testing.T
	server interface {
		Dial(ctx context.Context, network, address string) (net.Conn, error)
		Disconnect() // rejects new connections
		Reconnect()
		CloseConnections() // closes existing connections
	}
	links []*Link
	stop  func()

	mu   sync.Mutex
	from time.Time
	per  []int // number of requests in each interval since the start
}

func newFleet(t *testing.T, nodes int) *fleet {
	server := apitest.New(t)
	f := &fleet{t: t, server: server}
	count := func(http.ResponseWriter, *http.Request) bool {
		f.note()
		return false
	}
	server.Fault.Store(&count)
	dir := t.TempDir()
	path := dir + "/kubelet.conf"
	c := api.NewConfig()
	c.Clusters["c"] = &api.Cluster{Server: "http://127.0.0.1:1"}
	c.AuthInfos["u"] = &api.AuthInfo{Token: "t"}
	c.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	text, err := clientcmd.Write(*c)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.start(nodes, func(ctx context.Context, g *errgroup.Group, name string) {
		pod := podtest.New(name+"-pod", podtest.UID("u"+name), podtest.Node(name))
		server.Put(pod)
		box := f.join(ctx, g, name, path, dir)
		shown := pod.DeepCopy()
		shown.Annotations = map[string]string{keys.ConfigSource: desired.API}
		g.Go(func() error { // the pod's status changes every ten minutes, also during the outage
			for i := 0; sleep(ctx, 10*time.Minute); i++ {
				box.Put(shown, &corev1.PodStatus{Phase: corev1.PodRunning, Message: fmt.Sprint(i)})
			}
			return nil
		})
	})
	return f
}

// start calls join for each node. It sets f.stop, which ends all nodes.
func (f *fleet) start(nodes int, join func(ctx context.Context, g *errgroup.Group, name string)) {
	ctx, cancel := context.WithCancel(f.t.Context())
	g, ctx := errgroup.WithContext(ctx)
	f.stop = func() {
		cancel()
		if err := g.Wait(); err != nil {
			f.t.Error(err)
		}
		for _, l := range f.links {
			l.client.CloseConnections()
		}
	}
	for n := range nodes {
		join(ctx, g, fmt.Sprint("n", n))
	}
}

// join starts one node with all parts that send requests. It runs no pods.
func (f *fleet) join(ctx context.Context, g *errgroup.Group, name, kubeconfig, dir string) *outbox.Outbox {
	log, meta := slog.New(slog.DiscardHandler), &memory{values: map[string]string{}}
	l, err := New(ctx, Config{Kubeconfig: kubeconfig, CertDir: dir, NodeName: name, Meta: meta, Dial: f.server.Dial, QPS: 50,
		Burst: 100, Log: log})
	if err != nil {
		f.t.Fatal(err)
	}
	l.files.dirs = nil
	f.links = append(f.links, l)
	no, err := node.New(ctx, node.Config{
		Client: l.Client(), Name: name, Meta: meta, Register: true, StatusEvery: 10 * time.Second, ReportEvery: 5 * time.Minute,
		LeaseFor: 40 * time.Second,
		Facts:    func(context.Context) (node.Facts, error) { return node.Facts{}, nil }, Retry: l.Changed(), Now: l.Now, Log: log,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	box, err := outbox.New(outbox.Config{
		Client: l.Client(), Node: name, NodeUID: func() types.UID { return "" }, IsWanted: func(types.UID) bool { return true },
		IsReplaced:      func(types.UID) bool { return false },
		SourcesReported: func() bool { return true },
		Forget:          func(context.Context, types.UID) error { return nil }, Retry: l.Changed(), Log: log,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	pods, err := source.NewAPI(source.APIConfig{Client: l.Client(), Node: name, Sink: nowhere{}, Observer: box,
		Retry: l.Changed(), Log: log})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, run := range []func(context.Context) error{l.Run, no.Run, box.Run, pods.Run} {
		g.Go(func() error { return run(ctx) })
	}
	return box
}

// A nowhere is a sink that accepts and discards everything.
type nowhere struct{}

func (nowhere) Set(context.Context, string, []desired.SourcePod, []desired.Problem) error { return nil }
func (nowhere) ReportFailure(string, []desired.Problem)                                   {}
func (nowhere) Update(context.Context, string, []desired.SourcePod, []desired.RemovedPod) error {
	return nil
}

func (f *fleet) note() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.from.IsZero() {
		return
	}
	at := int(time.Since(f.from) / f.bin())
	for len(f.per) <= at {
		f.per = append(f.per, 0)
	}
	f.per[at]++
}

// bin returns the length of the intervals in which requests are counted. It is five seconds for a small fleet, and otherwise one second.
func (f *fleet) bin() time.Duration {
	if len(f.links) < 1000 {
		return 5 * time.Second
	}
	return time.Second
}

func (f *fleet) up() (n int) {
	for _, l := range f.links {
		if l.State().Phase == Up {
			n++
		}
	}
	return n
}

// outage disconnects the server for the given duration and reconnects it. It counts the requests until all nodes have reconnected.
func (f *fleet) outage(long time.Duration) (took time.Duration, peak int, mean float64, total int) {
	f.server.Disconnect()
	f.server.CloseConnections()
	time.Sleep(long)
	f.mu.Lock()
	f.from, f.per = time.Now(), nil
	f.mu.Unlock()
	f.server.Reconnect()
	for f.up() < len(f.links) && time.Since(f.from) < 10*time.Minute {
		time.Sleep(100 * time.Millisecond)
	}
	took = time.Since(f.from)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.per {
		total += n
	}
	f.from = time.Time{}
	return took, slices.Max(append(f.per, 0)) / int(f.bin()/time.Second), float64(total) / took.Seconds(), total
}
