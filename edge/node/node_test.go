package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/history"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
)

// A world is an API server with one node. The node can be restarted.
type world struct {
	*testing.T
	*apitest.Server
	*Node
	changed atomic.Int64
	retry   chan struct{}
	path    string
	end     func()
	cfg     func(*Config)

	mu    sync.Mutex
	facts Facts
}

// A lines is the log of a node.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), s)
}

// are changes the node's facts.
func (w *world) are(change func(*Facts)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.facts)
}

func (w *world) now(context.Context) (Facts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.facts, nil
}

func newWorld(t *testing.T, cfg func(*Config)) *world {
	w := prepare(t)
	w.cfg = cfg
	w.start()
	t.Cleanup(func() { w.end() })
	return w
}

// prepare returns a world whose node is not running yet.
func prepare(t *testing.T) *world {
	w := &world{T: t, Server: apitest.New(t), path: filepath.Join(t.TempDir(), "islet.db"), retry: make(chan struct{}, 1)}
	w.facts = Facts{
		Capacity:    v1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")},
		Allocatable: v1.ResourceList{"cpu": resource.MustParse("2")},
		Addresses:   []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.2"}, {Type: v1.NodeHostName, Address: "n"}},
		Info:        v1.NodeSystemInfo{KernelVersion: "6.1", KubeletVersion: "v1.36.3"},
	}
	return w
}

func (w *world) start() {
	w.Helper()
	log := slog.New(slog.DiscardHandler)
	db, err := store.Open(context.Background(), w.path, log)
	if err != nil {
		w.Fatal(err)
	}
	client := w.Server.Client(w.T)
	c := Config{
		Client: client, Name: "n", Meta: db, Register: true, Labels: map[string]string{"mine": "1"}, Port: 10250,
		Facts:       w.now,
		Changed:     func(*v1.Node) { w.changed.Add(1) },
		StatusEvery: 10 * time.Second, ReportEvery: 5 * time.Minute, LeaseFor: 40 * time.Second, MaxImages: 2, Retry: kube.LinkSignal{C: w.retry}, Log: log,
	}
	if w.cfg != nil {
		w.cfg(&c)
	}
	if w.Node, err = New(context.Background(), c); err != nil {
		w.Fatal(err)
	}
	n := w.Node
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := n.Run(ctx); err != nil {
			w.Error(err)
		}
	}()
	w.end = func() {
		cancel()
		<-ended
		client.CloseConnections()
		if err := db.Close(); err != nil {
			w.Error(err)
		}
	}
}

func (w *world) node() *v1.Node {
	w.Helper()
	n := w.Server.Node("n")
	if n == nil {
		w.Fatal("there is no Node")
	}
	return n
}

func (w *world) condition(t v1.NodeConditionType) (c v1.NodeCondition) {
	w.Helper()
	for _, c = range w.node().Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	w.Fatal("no condition", t)
	return c
}

func in(t *testing.T, cfg func(*Config), test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		synctest.Wait()
		test(w)
	})
}

func TestRegistersAndReports(t *testing.T) {
	taints := func(c *Config) { c.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}} }
	in(t, taints, func(w *world) {
		n := w.node()
		if n.Labels[v1.LabelHostname] != "n" || n.Labels["mine"] != "1" || n.Labels[v1.LabelOSStable] != "linux" ||
			len(n.Spec.Taints) != 1 {
			t.Errorf("%+v %+v", n.Labels, n.Spec)
		}
		if s := n.Status; s.Capacity.Cpu().Value() != 2 || len(s.Addresses) != 2 ||
			s.DaemonEndpoints.KubeletEndpoint.Port != 10250 || s.NodeInfo.KernelVersion != "6.1" {
			t.Errorf("%+v", s)
		}
		if c := w.condition(v1.NodeReady); c.Status != v1.ConditionTrue || c.Reason != "KubeletReady" || c.LastHeartbeatTime.IsZero() {
			t.Errorf("%+v", c)
		}
		w.are(func(f *Facts) {
			f.NotReady = []string{"container runtime network not ready: cni"}
			f.Images = []v1.ContainerImage{{Names: []string{"1", "2", "3", "4", "5", "6"}}, {}, {}}
			f.Capacity = f.Allocatable
		})
		time.Sleep(time.Minute)
		since := w.condition(v1.NodeReady)
		if since.Status != v1.ConditionFalse || since.Message != "container runtime network not ready: cni" ||
			len(w.node().Status.Capacity) != 1 {
			t.Errorf("%+v", w.node().Status)
		}
		if i := w.node().Status.Images; len(i) != 2 || len(i[0].Names) != 5 {
			t.Error(i)
		}
		w.are(func(f *Facts) { f.NotReady, f.DiskPressure = nil, true })
		w.Poke()
		synctest.Wait()
		if c, d := w.condition(v1.NodeReady), w.condition(v1.NodeDiskPressure); c.Status != v1.ConditionTrue ||
			d.Reason != "KubeletHasDiskPressure" {
			t.Error("Changed was not called immediately")
		}
	})
}

// steps records the calls of a Startup.
type steps struct {
	mu  sync.Mutex
	all []string
}

func (s *steps) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.all); n == 0 || s.all[n-1] != text {
		s.all = append(s.all, text)
	}
}

func (s *steps) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.all, " ")
	s.all = nil
	return text
}

func (s *steps) Registering() { s.add("registering") }
func (s *steps) Found()       { s.add("found") }
func (s *steps) Created()     { s.add("created") }
func (s *steps) Ready()       { s.add("ready") }

// TestStartupSteps checks the calls of Startup: when the node begins to register, when its Node object was found or created, and when the
// API server has stored the node as ready.
func TestStartupSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := prepare(t), &steps{}
		w.cfg = func(c *Config) { c.Startup = s }
		want := func(what, steps string) {
			t.Helper()
			if got := s.take(); got != steps {
				t.Errorf("%s: %q, not %q", what, got, steps)
			}
		}
		w.Disconnect()
		w.facts.NotReady = []string{"no network"}
		w.start()
		time.Sleep(time.Minute)
		want("without a server", "registering")
		w.Reconnect()
		time.Sleep(2 * time.Minute)
		want("a new node that is not ready", "registering created")
		w.are(func(f *Facts) { f.NotReady = nil })
		w.Poke()
		synctest.Wait()
		want("ready", "ready")
		w.end()

		w.start()
		time.Sleep(time.Minute)
		want("restarted", "registering found ready")
		w.end()

		w.Remove(w.node())
		w.start()
		synctest.Wait()
		want("a new node that is ready", "registering created ready")
		w.end()

		w.cfg = func(c *Config) { c.Startup, c.Register = s, false }
		w.start()
		synctest.Wait()
		want("without registration", "")
		w.end()
	})
}

func TestIdleNodeSaysLittle(t *testing.T) {
	var touched atomic.Int32
	in(t, func(c *Config) { c.OnPeriodicTask = func() { touched.Add(1) } }, func(w *world) {
		w.are(func(f *Facts) {
			f.Images = []v1.ContainerImage{{Names: []string{strings.Repeat("a", 2000)}}, {Names: []string{strings.Repeat("b", 2000)}}}
		})
		time.Sleep(time.Minute)
		before, beat := w.Total(), w.condition(v1.NodeReady).LastHeartbeatTime
		out, back := w.Bytes()
		touched.Store(0)
		time.Sleep(10 * time.Minute)
		if n := touched.Load(); n < 60+58-2 {
			t.Errorf("OnPeriodicTask was called %d times", n)
		}
		if n := w.Total() - before; n > 62+2 {
			t.Errorf("%d requests in ten minutes", n)
		}
		if !w.condition(v1.NodeReady).LastHeartbeatTime.After(beat.Time) {
			t.Error("no heartbeat")
		}
		// These limits are for HTTP/1.1 without TLS. Headers are 4/5 of the bytes.
		if out2, back2 := w.Bytes(); out2-out > 600*46 || back2-back > 600*28 {
			t.Errorf("%d B/s sent, %d B/s received", (out2-out)/600, (back2-back)/600)
		}
		if n := w.Requests("GET nodes"); n > 3 {
			t.Errorf("the Node was read %d times although no other program wrote to it", n)
		}
	})
}

// TestOthersWriteDuringReports checks that the node notices a change that another program makes just before a report of the node. The
// response to the report does not contain the change.
func TestOthersWriteDuringReports(t *testing.T) {
	in(t, nil, func(w *world) {
		time.Sleep(time.Minute)
		for i := range 5 {
			label := fmt.Sprint(i)
			other := func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/nodes/n/status") {
					n := w.node()
					n.Labels["other"] = label
					w.Put(n)
				}
				return false
			}
			w.Fault.Store(&other)
			w.are(func(f *Facts) { f.DiskPressure = !f.DiskPressure })
			w.Poke()
			time.Sleep(time.Second)
			w.Fault.Store(nil)
			if got := w.LastKnown().Labels["other"]; got != label {
				t.Errorf("label %q, want %q", got, label)
			}
			if want := v1.ConditionStatus([]string{"True", "False"}[i%2]); w.condition(v1.NodeDiskPressure).Status != want {
				t.Error("not reported", i)
			}
		}
	})
}

// TestManagedFields checks that the node clears the managedFields of its Node object. Entries of server-side apply are kept.
func TestManagedFields(t *testing.T) {
	for op, kept := range map[metav1.ManagedFieldsOperationType]int{metav1.ManagedFieldsOperationUpdate: 0,
		metav1.ManagedFieldsOperationApply: 1} {
		in(t, nil, func(w *world) {
			n := w.node()
			n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x", Operation: op, APIVersion: "v1"}}
			w.Put(n)
			w.end()
			w.start()
			time.Sleep(time.Second)
			if n := w.node().ManagedFields; len(n) != kept {
				t.Error(op, n)
			}
		})
	}
}

func TestNodeOfBeforeIsKept(t *testing.T) {
	in(t, nil, func(w *world) {
		n := w.node()
		n.Labels = map[string]string{"admin": "2", v1.LabelOSStable: "beos"}
		n.Spec.PodCIDRs = []string{"10.1.0.0/24"}
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse})
		w.Put(n)
		time.Sleep(time.Second)
		if got := w.LastKnown(); len(got.Spec.PodCIDRs) != 1 || w.changed.Load() == 0 {
			t.Error("Changed was not called for the podCIDR", got)
		}
		w.end()
		w.Disconnect()
		changed := w.changed.Load()
		w.start()
		if got := w.LastKnown(); len(got.Spec.PodCIDRs) != 1 || w.changed.Load() != changed+1 {
			t.Error("the last Node was not stored", got)
		}
		w.Reconnect()
		time.Sleep(20 * time.Second)
		n = w.node()
		if n.Labels["admin"] != "2" || n.Labels["mine"] != "" || n.Labels[v1.LabelOSStable] != "linux" {
			t.Error(n.Labels)
		}
		if w.condition(v1.NodeNetworkUnavailable).Status != v1.ConditionFalse {
			t.Error("the condition of another program was changed")
		}
	})
}

func TestDeletedNodeIsMadeAgain(t *testing.T) {
	in(t, nil, func(w *world) {
		old := w.node()
		w.Remove(old)
		time.Sleep(5 * time.Second)
		if w.node().UID == old.UID || w.LastKnown().UID != w.node().UID {
			t.Error("the Node is still the old one")
		}
		w.Disconnect()
		w.CloseConnections()
		w.Remove(w.node())
		w.Remove(w.Lease(v1.NamespaceNodeLease, "n"))
		w.Compact()
		w.Reconnect()
		time.Sleep(time.Minute)
		if l := w.Lease(v1.NamespaceNodeLease, "n"); l == nil || len(l.OwnerReferences) != 1 {
			t.Error(l)
		}
		w.node()
	})
}

func TestLeaseIsRenewed(t *testing.T) {
	in(t, nil, func(w *world) {
		renewed := func() time.Time { return w.Lease(v1.NamespaceNodeLease, "n").Spec.RenewTime.Time }
		for range 20 {
			time.Sleep(10 * time.Second)
			if age := time.Since(renewed()); age > 11*time.Second {
				t.Fatal(age)
			}
		}
		w.Disconnect()
		w.CloseConnections()
		time.Sleep(time.Hour)
		w.Reconnect()
		w.retry <- struct{}{}
		time.Sleep(time.Second)
		if age := time.Since(renewed()); age > time.Second {
			t.Error("not immediately when the link is back", age)
		}
	})
}

// TestRenewTimeGrowsAcrossRestarts checks that a start with an earlier clock, as of a machine without an RTC after a power cut, does not
// look like a server that has lost data: the answer to the first renewal is lost, so the Lease is read again. If the clock was far ahead
// before the restart, the node uses the present time of its clock.
func TestRenewTimeGrowsAcrossRestarts(t *testing.T) {
	for _, back := range []time.Duration{time.Hour, 48 * time.Hour} {
		t.Run(back.String(), func(t *testing.T) { testRenewTimeAfterStart(t, back) })
	}
}

func testRenewTimeAfterStart(t *testing.T, later time.Duration) {
	var back time.Duration
	var h *history.History
	in(t, func(c *Config) {
		var err error
		h, err = history.New(context.Background(), history.Config{Client: c.Client, Node: "n", Meta: c.Meta.(*store.Store), Log: c.Log})
		if err != nil {
			t.Fatal(err)
		}
		c.History, c.LastRenewal = h, h.LastRenewal()
		c.Now = func() time.Time { return time.Now().Add(-back) }
	}, func(w *world) {
		time.Sleep(time.Minute)
		ctx, stop := context.WithCancel(context.Background())
		stop()
		if err := h.Run(ctx); err != nil { // stores the last renewal
			t.Fatal(err)
		}
		before := w.Lease(v1.NamespaceNodeLease, "n").Spec.RenewTime.Time
		w.end()
		back = later
		var once sync.Once
		var renewed time.Time
		lost := func(rw http.ResponseWriter, r *http.Request) (done bool) {
			if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/leases/") {
				once.Do(func() { // the server renews the Lease, and its answer is lost
					change, lease := coordinationv1.Lease{}, w.Lease(v1.NamespaceNodeLease, "n").DeepCopy()
					if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
						t.Error(err)
					}
					lease.Spec.RenewTime, renewed = change.Spec.RenewTime, change.Spec.RenewTime.Time
					w.Put(lease)
					w.WriteError(rw, r, apierrors.NewInternalError(errors.New("no answer")))
					done = true
				})
			}
			return done
		}
		w.Fault.Store(&lost)
		w.start()
		time.Sleep(10 * time.Minute)
		grows := later < maxAhead
		if after := w.Lease(v1.NamespaceNodeLease, "n").Spec.RenewTime.Time; after.After(before) != grows || renewed.After(before) != grows ||
			renewed.IsZero() || h.Epoch() != 0 {
			t.Errorf("renewed at %s and %s, after %s; epoch %d", renewed, after, before, h.Epoch())
		}
	})
}

// TestUnknownIsCorrected checks that the node immediately corrects conditions that the node controller has set to Unknown.
func TestUnknownIsCorrected(t *testing.T) {
	in(t, nil, func(w *world) {
		time.Sleep(time.Minute)
		n := w.node()
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].Status = v1.ConditionUnknown
		}
		w.Put(n)
		time.Sleep(time.Second)
		if w.condition(v1.NodeReady).Status != v1.ConditionTrue {
			t.Error("still unknown")
		}
	})
}

func TestUnregisteredNodeWaits(t *testing.T) {
	in(t, func(c *Config) { c.Register = false }, func(w *world) {
		time.Sleep(time.Minute)
		if w.Server.Node("n") != nil {
			t.Fatal("registered")
		}
		n := &v1.Node{}
		n.Name = "n"
		w.Put(n)
		time.Sleep(time.Minute)
		if w.condition(v1.NodeReady).Status != v1.ConditionTrue {
			t.Error("not reported")
		}
	})
}

func TestConditionsAreAKubelets(t *testing.T) {
	for _, x := range []struct {
		facts Facts
		want  []string
	}{
		{Facts{}, []string{
			"MemoryPressure False KubeletHasSufficientMemory: kubelet has sufficient memory available",
			"DiskPressure False KubeletHasNoDiskPressure: kubelet has no disk pressure",
			"PIDPressure False KubeletHasSufficientPID: kubelet has sufficient PID available",
			"Ready True KubeletReady: kubelet is posting ready status",
		}},
		{Facts{MemoryPressure: true, DiskPressure: true, PIDPressure: true, NotReady: []string{"a", "b"}}, []string{
			"MemoryPressure True KubeletHasInsufficientMemory: kubelet has insufficient memory available",
			"DiskPressure True KubeletHasDiskPressure: kubelet has disk pressure",
			"PIDPressure True KubeletHasInsufficientPID: kubelet has insufficient PID available",
			"Ready False KubeletNotReady: a, b",
		}},
	} {
		var got []string
		for _, c := range newConditions(x.facts) {
			got = append(got, fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason, ": ", c.Message))
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%q", got)
		}
	}
}
