package brake

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/history"
	"github.com/islet-edge/islet/edge/node"
	"github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

// A site is a control plane and a node in a synctest bubble. The node has all parts from the API source to the set of wanted pods. It has
// no containers, so a pod ends immediately.
type site struct {
	testing.TB
	*apitest.Server
	*desired.Desired
	brake  *Brake
	path   string
	limit  time.Duration
	left   func()       // not nil: the configuration has no cluster
	ahead  atomic.Int64 // difference between the wall clock and the clock of the bubble
	writes atomic.Int64 // number of writes of the brake
	events []string
	dead   atomic.Bool // the agent was killed, so it skips its work at the end
	stop   func()

	stalled atomic.Bool // writes of the brake wait
}

func TestMain(m *testing.M) {
	os.Exit(mountstest.MainIfRoot(func() int { return eventtest.Main(m, "brake") }))
}

func (s *site) event(warning bool, reason, message string) {
	kind := v1.EventTypeNormal
	if warning {
		kind = v1.EventTypeWarning
	}
	eventtest.RecordEvent(kind, reason, message)
	s.events = append(s.events, reason)
}

// at runs a test on a site with the pods a, b, c and d.
func at(t *testing.T, test func(s *site)) {
	t.Helper()
	atPath(t, filepath.Join(t.TempDir(), "islet.db"), test)
}

// atPath is at with the database at a path.
func atPath(t *testing.T, path string, test func(s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{TB: t, Server: apitest.New(t), path: path}
		s.putService()
		for _, name := range []string{"a", "b", "c", "d"} {
			s.Put(pod(name))
		}
		s.start()
		defer func() { s.stop() }()
		s.want("a b c d", "")
		time.Sleep(time.Minute) // the lease is renewed several times
		test(s)
	})
}

func pod(name string) *v1.Pod {
	return podtest.New(name, podtest.UID(""), podtest.Node("n"), podtest.Image("a:1"))
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// start starts the agent.
func (s *site) start() {
	s.Helper()
	log := slog.New(slog.NewTextHandler(s.Output(), nil))
	ctx, cancel := context.WithCancel(s.Context())
	db := must[*store.Store](s.TB)(store.Open(ctx, s.path, log))
	var d *desired.Desired
	forget := make(chan types.UID, 100)
	d = must[*desired.Desired](s.TB)(desired.New(desired.Config{Store: db, Poke: func(uid types.UID) { forget <- uid }, Log: log}))
	client := s.Client(s.TB)
	h := must[*history.History](s.TB)(history.New(ctx, history.Config{Client: client, Node: "n", Meta: mortal{db, s},
		AddMetaValue: db.AddMetaValue, Log: log}))
	b := must[*Brake](s.TB)(New(ctx, Config{Client: client, Node: "n", Next: d, Pods: d.List, Epoch: h.Epoch,
		Meta: counted{mortal{db, s}}, Now: func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }, Limit: s.limit, Log: log,
		Event: s.event, Left: s.left}))
	n := must[*node.Node](s.TB)(node.New(ctx, node.Config{Client: client, Name: "n", Meta: db, History: h, Register: true, Log: log,
		Facts:       func(context.Context) (node.Facts, error) { return node.Facts{}, nil },
		Changed:     func(n *v1.Node) { b.Registered(ctx, n.UID) },
		StatusEvery: time.Minute, ReportEvery: 5 * time.Minute, LeaseFor: 40 * time.Second}))
	a := must[*source.API](s.TB)(source.NewAPI(source.APIConfig{Client: client, Node: "n", Sink: b, History: h,
		Relist: b.RelistRequests(), Log: log}))
	done := make(chan struct{})
	runs := []interface{ Run(context.Context) error }{h, b, n, a}
	for _, r := range runs {
		go func() {
			if err := r.Run(ctx); err != nil {
				s.Error(err)
			}
			done <- struct{}{}
		}()
	}
	go func() {
		for {
			select {
			case uid := <-forget:
				if p, ok := d.Get(uid); ok && p.Deleting {
					if err := d.Forget(ctx, uid); err != nil && ctx.Err() == nil {
						s.Error(err)
					}
				}
			case <-ctx.Done():
				done <- struct{}{}
				return
			}
		}
	}()
	s.Desired, s.brake = d, b
	s.stop = func() {
		cancel()
		for range len(runs) + 1 {
			<-done
		}
		client.CloseConnections()
		if err := db.Close(); err != nil {
			s.Error(err)
		}
		s.stop = func() {}
	}
}

func (s *site) restart() {
	s.Helper()
	s.stop()
	s.start()
}

func (s *site) running() string {
	var names []string
	for _, p := range s.List() {
		names = append(names, p.Pod.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// want waits up to 5 s for the expected state of the node. The parameter running lists the pods that the node must want. The parameter held
// lists the pods that it must hold.
func (s *site) want(running, held string) {
	s.Helper()
	began := time.Now()
	var got, kept string
	for time.Since(began) <= 5*time.Second {
		synctest.Wait()
		got = s.running()
		var names []string
		if h, ok := s.brake.CurrentHold(); ok {
			for _, p := range s.List() {
				if slices.Contains(h.Pods, p.Pod.UID) {
					names = append(names, p.Pod.Name)
				}
			}
		}
		slices.Sort(names)
		if kept = strings.Join(names, " "); got == running && kept == held {
			return
		}
		time.Sleep(100 * time.Millisecond) // in the bubble
	}
	s.Fatalf("runs %q and holds %q, want %q and %q", got, kept, running, held)
}

// stays checks that the wanted and held pods stay the same during six minutes and two restarts.
func (s *site) stays(running, held string) {
	s.Helper()
	for range 2 {
		time.Sleep(3 * time.Minute)
		s.want(running, held)
		s.restart()
		s.want(running, held)
	}
}

// away calls the given function while the node is disconnected. Then it connects the node again.
func (s *site) away(happens func()) {
	s.Disconnect()
	s.CloseConnections()
	time.Sleep(2 * time.Minute)
	happens()
	s.Reconnect()
	time.Sleep(30 * time.Second) // until the node has reconnected
}

// recreateCluster replaces the data of the API server by those of a new cluster without pods.
func (s *site) recreateCluster() {
	s.Restore(&apitest.Snapshot{}, 50)
	s.putService()
}

// putService creates the Service kubernetes, as each API server does. Its UID identifies the cluster.
func (s *site) putService() {
	s.Put(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}})
}

func (s *site) accept(want int) {
	s.Helper()
	if n, err := s.brake.Accept(s.Context()); n != want || err != nil {
		s.Errorf("accepted the end of %d pods: %v; want %d", n, err, want)
	}
}
