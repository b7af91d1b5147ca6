package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
	old "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/islet-edge/islet/agent/plugin/plugins"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podtest"
)

const driverName = "gpu.example.com"

// A world is a Manager with a real store, and an API server that has claims.
type world struct {
	*Manager
	t       *testing.T
	root    string
	db      *store.Store
	touched chan types.UID

	mu      sync.Mutex
	objects map[string]*resourcev1.ResourceClaim
	renewed func()
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, root: t.TempDir(), objects: map[string]*resourcev1.ResourceClaim{}, touched: make(chan types.UID, 100), renewed: func() {}}
	w.start()
	t.Cleanup(func() { w.Close(); w.db.Close() })
	return w
}

func (w *world) start() {
	w.t.Helper()
	if w.db != nil {
		w.Close()
		w.db.Close()
	}
	var err error
	if w.db, err = store.Open(context.Background(), filepath.Join(w.root, "islet.db"), slog.New(slog.DiscardHandler)); err != nil {
		w.t.Fatal(err)
	}
	w.Manager = New(Config{Store: w.db, Objects: w, PodChanged: func(uid types.UID) { w.touched <- uid }, Log: slog.New(slog.DiscardHandler)})
	if err := w.Load(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ResourceClaim(_ *v1.Pod, name string) (*resourcev1.ResourceClaim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.objects[name]; c != nil {
		return c.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), name)
}

func (w *world) Renew(context.Context, *v1.Pod) error { w.renewed(); return nil }

func (w *world) object(name string, users ...*v1.Pod) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	for _, p := range users {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: driverName, Pool: "p", Device: "d"}}}}
	w.mu.Lock()
	w.objects[name] = c
	w.mu.Unlock()
	return c
}

func pod(name string, claims ...string) *v1.Pod {
	p := podtest.New(name)
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: c, ResourceClaimName: new(c)})
		asked := &p.Spec.Containers[0].Resources
		asked.Claims = append(asked.Claims, v1.ResourceClaim{Name: c})
	}
	return p
}

// A fake is a driver with a real server.
type fake struct {
	api.UnimplementedDRAPluginServer
	health.UnimplementedDRAResourceHealthServer
	mu     sync.Mutex
	said   []string
	fail   string
	claims map[string]*api.NodePrepareResourceResponse // instead of the usual answer
	health chan []*health.DeviceHealth                 // nil: it does not say
	server *grpc.Server
	socket string
}

// kill ends the driver as SIGKILL does: its socket stays, and nobody listens there.
func (f *fake) kill() {
	f.server.Stop()
	if l, err := net.Listen("unix", f.socket); err == nil {
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
	}
}

func (f *fake) NodePrepareResources(_ context.Context, q *api.NodePrepareResourcesRequest) (*api.NodePrepareResourcesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claims != nil {
		return &api.NodePrepareResourcesResponse{Claims: f.claims}, nil
	}
	out := &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{}}
	for _, c := range q.Claims {
		f.said = append(f.said, "prepare "+c.Name)
		out.Claims[c.Uid] = &api.NodePrepareResourceResponse{Error: f.fail, Devices: []*api.Device{
			{RequestNames: []string{"r"}, PoolName: "p", DeviceName: "d", CdiDeviceIds: []string{"example.com/gpu=" + c.Name}},
			{RequestNames: []string{"s"}, PoolName: "p", DeviceName: "e"},
		}}
	}
	return out, nil
}

func (f *fake) NodeUnprepareResources(_ context.Context, q *api.NodeUnprepareResourcesRequest) (*api.NodeUnprepareResourcesResponse,
	error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &api.NodeUnprepareResourcesResponse{Claims: map[string]*api.NodeUnprepareResourceResponse{}}
	for _, c := range q.Claims {
		f.said = append(f.said, "unprepare "+c.Name)
		out.Claims[c.Uid] = &api.NodeUnprepareResourceResponse{Error: f.fail}
	}
	return out, nil
}

func (f *fake) NodeWatchResources(_ *health.NodeWatchResourcesRequest,
	s grpc.ServerStreamingServer[health.NodeWatchResourcesResponse]) error {
	for {
		select {
		case list := <-f.health:
			if err := s.Send(&health.NodeWatchResourcesResponse{Devices: list}); err != nil {
				return err
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func (f *fake) told() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := strings.Join(f.said, ", ")
	f.said = nil
	return out
}

// serve makes the driver's socket.
func (f *fake) serve(t *testing.T, beta bool) plugins.Plugin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dra.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	version := "v1.DRAPlugin"
	if beta {
		version = "v1beta1.DRAPlugin"
		d := api.DRAPlugin_ServiceDesc
		d.ServiceName = old.DRAPlugin_ServiceDesc.ServiceName
		s.RegisterService(&d, f)
	} else {
		api.RegisterDRAPluginServer(s, f)
	}
	if f.health != nil {
		health.RegisterDRAResourceHealthServer(s, f)
	}
	go s.Serve(l)
	t.Cleanup(s.Stop)
	f.server, f.socket = s, path
	return plugins.Plugin{Name: driverName, Endpoint: path, Versions: []string{"v1.Other", version}}
}

func (w *world) register(p plugins.Plugin) {
	w.t.Helper()
	if err := errors.Join(w.Validate(p), w.Register(w.t.Context(), p)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) prepare(p *v1.Pod, wrong string) {
	w.t.Helper()
	err := w.Prepare(w.t.Context(), p)
	if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
		w.t.Errorf("%s: got %v, not %q", p.Name, err, wrong)
	}
}

func cdi(w *world, p *v1.Pod) (out []string) {
	w.t.Helper()
	cfg := &cri.ContainerConfig{}
	if err := w.Container(w.t.Context(), p, &p.Spec.Containers[0], cfg); err != nil {
		w.t.Fatal(err)
	}
	for _, d := range cfg.CDIDevices {
		out = append(out, d.Name)
	}
	return out
}

// TestLife: a claim is prepared once for all of its pods, again after a restart of the agent
// and without an API server, and taken back when its last pod is gone.
func TestLife(t *testing.T) {
	for _, beta := range []bool{false, true} {
		t.Run(fmt.Sprint("beta ", beta), func(t *testing.T) {
			w := newWorld(t)
			a, b := pod("a", "gpu"), pod("b", "gpu")
			w.object("gpu", a, b)
			w.prepare(a, "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver gpu.example.com is not registered")
			if rows, err := w.db.Claims(t.Context()); err != nil || len(rows) != 0 {
				t.Errorf("nobody could take back %v, %v", rows, err)
			}
			f := &fake{}
			at := f.serve(t, beta)
			w.register(at)
			if uid := <-w.touched; uid != a.UID {
				t.Error("the pod does not learn that the driver is here")
			}
			w.prepare(a, "")
			w.prepare(a, "")
			w.prepare(b, "")
			if got := f.told(); got != "prepare gpu" {
				t.Errorf("the driver was told %q", got)
			}
			if got := cdi(w, a); !slices.Equal(got, []string{"example.com/gpu=gpu"}) {
				t.Errorf("the container gets %q", got)
			}
			w.objects = nil
			w.start()
			w.register(at)
			w.prepare(a, "")
			if err := w.Ended(t.Context(), b); err != nil {
				t.Error(err)
			}
			if got := f.told(); got != "prepare gpu" {
				t.Errorf("after a restart the driver was told %q", got)
			}
			f.fail = "it burns"
			if err := w.Release(t.Context(), a.UID); err == nil || !strings.Contains(err.Error(), "it burns") {
				t.Errorf("got %v", err)
			}
			w.start()
			w.register(at)
			f.fail = ""
			for range 2 {
				if err := w.Release(t.Context(), a.UID); err != nil {
					t.Error(err)
				}
			}
			if got := f.told(); got != "unprepare gpu, unprepare gpu" {
				t.Errorf("at the end the driver was told %q", got)
			}
			if rows, err := w.db.Claims(t.Context()); err != nil || len(rows) != 0 {
				t.Errorf("left are %v, %v", rows, err)
			}
		})
	}
}

// TestNotAllowed: a pod gets no claim that is not its own.
func TestNotAllowed(t *testing.T) {
	w := newWorld(t)
	w.register((&fake{}).serve(t, false))
	p := pod("p", "gpu")
	w.prepare(p, `fetch ResourceClaim gpu: resourceclaims.resource.k8s.io "gpu" not found`)
	c := w.object("gpu")
	w.prepare(p, "pod p (p) is not allowed to use ResourceClaim gpu (uid-gpu)")
	w.renewed = func() { w.object("gpu", p) } // what was known is of before
	w.prepare(p, "")
	w.renewed = func() {}
	if err := w.Release(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	c = w.object("gpu", p)
	c.Status.Allocation = nil
	w.prepare(p, "not allocated")
	w.object("gpu", p)
	p.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("t")}
	w.prepare(p, "not created yet")
	p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("gpu")}}
	w.prepare(p, "was not created for pod default/p (pod is not owner)")
	w.object("gpu", p).OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: p.UID, Controller: new(true)}}
	w.prepare(p, "")
	w.object("gpu", p).UID = "another"
	other := pod("other", "gpu")
	w.object("gpu", other).UID = "another"
	w.prepare(other, "old ResourceClaim with same name gpu and different UID uid-gpu still exists")
}

// TestHostileDriver: what a driver may not say harms its own pods only.
func TestHostileDriver(t *testing.T) {
	w := newWorld(t)
	f := &fake{}
	w.register(f.serve(t, false))
	p := pod("p", "gpu")
	w.object("gpu", p)
	many := make([]*api.Device, maxDevices+1)
	for name, c := range map[string]map[string]*api.NodePrepareResourceResponse{
		"skipped":   {},
		"other":     {"other": {}},
		"it has":    {"uid-gpu": {Devices: many}},
		"too many":  {"uid-gpu": {Devices: []*api.Device{{CdiDeviceIds: make([]string, maxCDI+1)}}}},
		"invalid n": {"uid-gpu": {Devices: []*api.Device{{PoolName: strings.Repeat("x", maxText+1)}}}},
		"for Resou": {"uid-gpu": {Error: strings.Repeat("x", 5000)}},
	} {
		f.claims = c
		if name == "other" {
			name = "skipped"
		}
		w.prepare(p, name)
	}
	for _, x := range []plugins.Plugin{{Name: "../x", Versions: []string{"v1.DRAPlugin"}}, {Name: driverName, Versions: []string{"v1alpha4.Node"}}} {
		if w.Validate(x) == nil {
			t.Errorf("%v is a driver", x)
		}
	}
}

// TestAllocatedAnew: a claim whose pod was deleted by force, and which its driver does not take
// back, is not given to the next pod with the devices of before: it may have others now.
func TestAllocatedAnew(t *testing.T) {
	w := newWorld(t)
	f, other := &fake{}, &fake{}
	must(t, w.Register(t.Context(), f.serve(t, false)))
	elsewhere := other.serve(t, false)
	elsewhere.Name = "nic.example.com"
	must(t, w.Register(t.Context(), elsewhere))
	first, next := pod("first", "c"), pod("next", "c")
	w.object("c", first)
	must(t, w.Prepare(t.Context(), first))
	f.fail = "busy"
	if err := w.Release(t.Context(), first.UID); err == nil {
		t.Error("taken back")
	}
	w.object("c", next).Status.Allocation.Devices.Results[0].Driver = elsewhere.Name
	if err := w.Prepare(t.Context(), next); err == nil ||
		!strings.Contains(err.Error(), "still prepared for a pod for which it is no longer reserved") {
		t.Errorf("the next pod has it: %v", err)
	}
	f.fail = ""
	must(t, w.Release(t.Context(), first.UID))
	must(t, w.Prepare(t.Context(), next))
	if uses, err := w.Uses(next, &next.Spec.Containers[0]); err != nil || len(uses) == 0 || uses[0].Driver != elsewhere.Name {
		t.Errorf("%+v, %v", uses, err)
	}
	if got := f.told(); got != "prepare c, unprepare c, unprepare c" {
		t.Errorf("the driver of before was asked: %s", got)
	}
}

// TestWaitingEnds: of pods that waited for drivers that never came nothing is left.
func TestWaitingEnds(t *testing.T) {
	w := newWorld(t)
	p := pod("p", "gpu")
	w.object("gpu", p)
	w.prepare(p, "is not registered")
	if err := w.Release(t.Context(), p.UID); err != nil || len(w.waiting) != 0 {
		t.Errorf("%v; waiting: %v", err, w.waiting)
	}
}

// TestHealth: what a driver says of its devices is in the status of the pods that have them,
// and unknown once the driver is gone.
func TestHealth(t *testing.T) {
	w := newWorld(t)
	f := &fake{health: make(chan []*health.DeviceHealth, 1)}
	at := f.serve(t, false)
	w.register(at)
	p := pod("p", "gpu")
	w.object("gpu", p)
	w.prepare(p, "")
	status := func() string {
		st := w.Status(p, &p.Spec.Containers[0])
		if len(st) != 1 || st[0].Name != "claim:gpu" || len(st[0].Resources) != 2 ||
			st[0].Resources[0].ResourceID != "example.com/gpu=gpu" || st[0].Resources[1].ResourceID != driverName+"/p/e" {
			t.Fatalf("the status is %+v", st)
		}
		out := string(st[0].Resources[0].Health)
		if m := st[0].Resources[0].Message; m != nil {
			out += " " + *m
		}
		return out
	}
	if got := status(); got != "Unknown" {
		t.Error("at first it is", got)
	}
	device := &health.DeviceIdentifier{PoolName: "p", DeviceName: "d"}
	for _, c := range []struct {
		say  health.HealthStatus
		text string
		want string
	}{{health.HealthStatus_UNHEALTHY, "on fire", "Unhealthy on fire"}, {health.HealthStatus_HEALTHY, "", "Healthy"}} {
		f.health <- []*health.DeviceHealth{{Device: device, Health: c.say, Message: c.text}}
		if uid := <-w.touched; uid != p.UID {
			t.Error("told", uid)
		}
		if got := status(); got != c.want {
			t.Errorf("it is %q, not %q", got, c.want)
		}
	}
	w.Deregister(at)
	if uid := <-w.touched; uid != p.UID || status() != "Unknown" {
		t.Error("without its driver:", uid, status())
	}
}

// TestGreedyDriver: a driver that tells the health of all devices that fit gives way to others with
// fewer, and then has what they leave.
func TestGreedyDriver(t *testing.T) {
	w := newWorld(t)
	said := func(n, text int) (list []*health.DeviceHealth) {
		message := strings.Repeat("x", text)
		for i := range n {
			list = append(list, &health.DeviceHealth{Device: &health.DeviceIdentifier{PoolName: "p", DeviceName: fmt.Sprint(i)}, Message: message})
		}
		return list
	}
	for name, text := range map[string]int{"devices": 0, "bytes": maxText} { // of a message
		greedy, other := &driver{name: "greedy", health: map[deviceKey]condition{}}, &driver{name: "other", health: map[deviceKey]condition{}}
		w.drivers = map[string][]*driver{"greedy": {greedy}, "other": {other}}
		for range 3 {
			w.updateHealth(greedy, said(2*maxHealth, text), false)
			w.updateHealth(other, said(100, text), false)
			if len(other.health) != 100 {
				t.Errorf("%s: the other one has %d devices", name, len(other.health))
			}
		}
		w.updateHealth(greedy, said(2*maxHealth, text), false)
		if devices, bytes := w.healthSize(); len(other.health) != 100 || len(greedy.health) < 1000 || devices > maxHealth ||
			bytes > maxHealthBytes {
			t.Errorf("%s: the greedy one has %d devices, the other one %d", name, len(greedy.health), len(other.health))
		}
		for _, d := range []*driver{greedy, other} {
			w.updateHealth(d, nil, true)
		}
	}
	w.drivers = map[string][]*driver{}
}

// reached notes which drivers can be reached, as they are told.
type reached struct{ said chan string }

func (r reached) Here(driver string) { r.said <- "here " + driver }
func (r reached) Gone(driver string) { r.said <- "gone " + driver }

// TestReach: a driver whose process dies without removing its socket cannot be reached, one
// of which another instance lives can, and the calls go to that.
func TestReach(t *testing.T) {
	w := newWorld(t)
	told := reached{make(chan string, 100)}
	w.c.Slices = told
	wants := func(want string) {
		t.Helper()
		if got := <-told.said; got != want {
			t.Fatalf("told %q, not %q", got, want)
		}
	}
	var first, second fake
	a, b := first.serve(t, false), second.serve(t, false)
	w.register(a)
	wants("gone " + driverName) // until there is a connection
	wants("here " + driverName)
	w.register(b)
	w.awaitInstance(b)
	second.kill()
	w.awaitInstance(a)
	p := pod("p", "gpu")
	w.object("gpu", p)
	w.prepare(p, "")
	if got := first.told(); got != "prepare gpu" {
		t.Errorf("the instance that lives was asked %q", got)
	}
	first.kill()
	wants("gone " + driverName)
	w.Deregister(b)
	w.Deregister(a)
	w.register(first.serve(t, false))
	wants("gone " + driverName)
	wants("here " + driverName)
}

// awaitInstance waits until calls would go to one.
func (w *world) awaitInstance(p plugins.Plugin) {
	for again := time.Tick(5 * time.Millisecond); w.driver(driverName).endpoint != p.Endpoint; {
		<-again
	}
}

// counts are those of operations and calls.
type counts struct {
	mu   sync.Mutex
	said []string
}

func (c *counts) DRAOperation(name string, failed bool, _ time.Duration) {
	c.note(fmt.Sprint(name, " ", failed))
}
func (c *counts) DRACall(driver, method, code string, _ time.Duration) {
	c.note(driver + method + " " + code)
}
func (c *counts) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, text)
}

// TestCounted: what is done for pods with claims is counted, and what drivers are asked.
func TestCounted(t *testing.T) {
	w := newWorld(t)
	c := &counts{}
	w.c.Counted = c
	f := &fake{fail: "no"}
	w.register(f.serve(t, false))
	p := pod("p", "gpu")
	w.object("gpu", p)
	w.prepare(pod("without"), "")
	w.prepare(p, "no")
	f.fail = ""
	w.prepare(p, "")
	if drivers, all := w.InUse(); all != 1 || drivers[driverName] != 1 {
		t.Errorf("%v, %d are in use", drivers, all)
	}
	if err := errors.Join(w.Release(t.Context(), "without"), w.Release(t.Context(), p.UID)); err != nil {
		t.Fatal(err)
	}
	if drivers, all := w.InUse(); all != 0 || len(drivers) != 0 {
		t.Errorf("%v, %d are in use", drivers, all)
	}
	const call = driverName + "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
	want := []string{call + "NodePrepareResources OK", "PrepareResources true", call + "NodePrepareResources OK", "PrepareResources false", call + "NodeUnprepareResources OK", "UnprepareResources false"}
	if !slices.Equal(c.said, want) {
		t.Errorf("counted %q, not %q", c.said, want)
	}
}

// TestRequests: a container gets the devices of the requests that it names.
func TestRequests(t *testing.T) {
	w := newWorld(t)
	w.register((&fake{}).serve(t, false))
	p := pod("p", "gpu")
	w.object("gpu", p)
	w.prepare(p, "")
	for request, want := range map[string]int{"": 1, "r": 1, "r/sub": 1, "s": 0, "none": 0} {
		p.Spec.Containers[0].Resources.Claims[0].Request = request
		if got := cdi(w, p); len(got) != want {
			t.Errorf("%q: %q", request, got)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
