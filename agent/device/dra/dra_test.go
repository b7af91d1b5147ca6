package dra

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/islet-edge/islet/agent/plugin/plugins"
)

// TestLife checks that a claim is prepared once for all its pods. After a restart of the agent it is prepared again, without the API
// server. It is unprepared when its last pod is deleted.
func TestLife(t *testing.T) {
	for _, beta := range []bool{false, true} {
		t.Run(fmt.Sprint("beta ", beta), func(t *testing.T) {
			w := newWorld(t)
			a, b := pod("a", "gpu"), pod("b", "gpu")
			w.object("gpu", a, b)
			w.prepare(a, "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver gpu.example.com is not registered")
			if rows, err := w.db.Claims(t.Context()); err != nil || len(rows) != 0 {
				t.Errorf("claims that no driver can unprepare: %v, %v", rows, err)
			}
			f := &fake{}
			at := f.serve(t, beta)
			w.register(at)
			if uid := <-w.touched; uid != a.UID {
				t.Error("the pod is not notified of the driver")
			}
			w.prepare(a, "")
			w.prepare(a, "")
			w.prepare(b, "")
			if got := f.recordedCalls(); got != "prepare gpu" {
				t.Errorf("calls of the driver: %q", got)
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
			if got := f.recordedCalls(); got != "prepare gpu" {
				t.Errorf("calls of the driver after a restart: %q", got)
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
			if got := f.recordedCalls(); got != "unprepare gpu, unprepare gpu" {
				t.Errorf("calls of the driver at the end: %q", got)
			}
			if rows, err := w.db.Claims(t.Context()); err != nil || len(rows) != 0 {
				t.Errorf("left are %v, %v", rows, err)
			}
		})
	}
}

// TestNotAllowed checks that a pod does not get a ResourceClaim that is not reserved for it.
func TestNotAllowed(t *testing.T) {
	w := newWorld(t)
	w.register((&fake{}).serve(t, false))
	p := pod("p", "gpu")
	w.prepare(p, `fetch ResourceClaim gpu: resourceclaims.resource.k8s.io "gpu" not found`)
	c := w.object("gpu")
	w.prepare(p, "pod p (p) is not allowed to use ResourceClaim gpu (uid-gpu)")
	w.renewed = func() { w.object("gpu", p) } // the stored claim is outdated
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

// TestHostileDriver checks that an invalid response of a driver fails only the pods that use this driver.
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

// TestAllocatedAnew checks a claim that was allocated again after its pod was force-deleted. Its driver fails to unprepare the old
// allocation. The next pod does not get the devices of the old allocation.
func TestAllocatedAnew(t *testing.T) {
	w := newWorld(t)
	f, other := &fake{}, &fake{}
	requireNoError(t, w.Register(t.Context(), f.serve(t, false)))
	elsewhere := other.serve(t, false)
	elsewhere.Name = "nic.example.com"
	requireNoError(t, w.Register(t.Context(), elsewhere))
	first, next := pod("first", "c"), pod("next", "c")
	w.object("c", first)
	requireNoError(t, w.Prepare(t.Context(), first))
	f.fail = "busy"
	if err := w.Release(t.Context(), first.UID); err == nil {
		t.Error("the claim was unprepared")
	}
	w.object("c", next).Status.Allocation.Devices.Results[0].Driver = elsewhere.Name
	if err := w.Prepare(t.Context(), next); err == nil ||
		!strings.Contains(err.Error(), "still prepared for a pod for which it is no longer reserved") {
		t.Errorf("the next pod: %v", err)
	}
	f.fail = ""
	requireNoError(t, w.Release(t.Context(), first.UID))
	requireNoError(t, w.Prepare(t.Context(), next))
	if uses, err := w.Uses(next, &next.Spec.Containers[0]); err != nil || len(uses) == 0 || uses[0].Driver != elsewhere.Name {
		t.Errorf("%+v, %v", uses, err)
	}
	if got := f.recordedCalls(); got != "prepare c, unprepare c, unprepare c" {
		t.Errorf("calls of the first driver: %s", got)
	}
}

// TestWaitingEnds checks that a pod that waits for a driver is removed from the list of waiting pods when it is deleted.
func TestWaitingEnds(t *testing.T) {
	w := newWorld(t)
	p := pod("p", "gpu")
	w.object("gpu", p)
	w.prepare(p, "is not registered")
	if err := w.Release(t.Context(), p.UID); err != nil || len(w.waiting) != 0 {
		t.Errorf("%v; waiting: %v", err, w.waiting)
	}
}

// TestHealth checks that a pod's status contains the health that the driver reports for the pod's devices. After the driver has
// disconnected, the health is Unknown.
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
		t.Error("the first status is", got)
	}
	device := &health.DeviceIdentifier{PoolName: "p", DeviceName: "d"}
	for _, c := range []struct {
		say  health.HealthStatus
		text string
		want string
	}{{health.HealthStatus_UNHEALTHY, "on fire", "Unhealthy on fire"}, {health.HealthStatus_HEALTHY, "", "Healthy"}} {
		f.health <- []*health.DeviceHealth{{Device: device, Health: c.say, Message: c.text}}
		if uid := <-w.touched; uid != p.UID {
			t.Error("notified", uid)
		}
		if got := status(); got != c.want {
			t.Errorf("status %q, not %q", got, c.want)
		}
	}
	w.Deregister(at)
	if uid := <-w.touched; uid != p.UID || status() != "Unknown" {
		t.Error("without its driver:", uid, status())
	}
}

// TestGreedyDriver checks that a driver with too many device health reports does not displace a driver with few devices. The first driver
// may use the remaining space.
func TestGreedyDriver(t *testing.T) {
	w := newWorld(t)
	said := func(n, text int) (list []*health.DeviceHealth) {
		message := strings.Repeat("x", text)
		for i := range n {
			list = append(list, &health.DeviceHealth{Device: &health.DeviceIdentifier{PoolName: "p", DeviceName: fmt.Sprint(i)}, Message: message})
		}
		return list
	}
	for name, text := range map[string]int{"devices": 0, "bytes": maxText} { // the value is the size of a message in bytes
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

// A reached records whether a driver was reported as reachable or unreachable.
type reached struct{ said chan string }

func (r reached) DriverConnected(driver string) { r.said <- "here " + driver }
func (r reached) DriverGone(driver string)      { r.said <- "gone " + driver }

// TestReach checks that a driver is reported as unreachable if its process dies without removing its socket. If another instance of the
// driver runs, that instance receives the calls.
func TestReach(t *testing.T) {
	w := newWorld(t)
	told := reached{make(chan string, 100)}
	w.c.Slices = told
	wants := func(want string) {
		t.Helper()
		if got := <-told.said; got != want {
			t.Fatalf("reported %q, not %q", got, want)
		}
	}
	var first, second fake
	a, b := first.serve(t, false), second.serve(t, false)
	w.register(a)
	wants("gone " + driverName) // the driver is unreachable until the agent is connected to it
	wants("here " + driverName)
	w.register(b)
	w.awaitInstance(b)
	second.kill()
	w.awaitInstance(a)
	p := pod("p", "gpu")
	w.object("gpu", p)
	w.prepare(p, "")
	if got := first.recordedCalls(); got != "prepare gpu" {
		t.Errorf("calls of the running instance: %q", got)
	}
	first.kill()
	wants("gone " + driverName)
	w.Deregister(b)
	w.Deregister(a)
	w.register(first.serve(t, false))
	wants("gone " + driverName)
	wants("here " + driverName)
}

// awaitInstance waits until the instance p receives the calls.
func (w *world) awaitInstance(p plugins.Plugin) {
	for again := time.Tick(5 * time.Millisecond); w.latestDriver(driverName).endpoint != p.Endpoint; {
		<-again
	}
}

// A counts records counted operations and calls.
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

// TestCounted checks that the metrics count calls of drivers and the operations for pods with claims.
func TestCounted(t *testing.T) {
	w := newWorld(t)
	c := &counts{}
	w.c.Counter = c
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

// TestRequests checks that a container gets only the devices of the requests that it names.
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

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
