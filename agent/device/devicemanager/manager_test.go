package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podtest"
)

const thing = "example.com/thing"

// A world is a Manager with a real store.
type world struct {
	*Manager
	t    *testing.T
	path string
	db   *store.Store

	mu      sync.Mutex
	changed int
	touched []types.UID
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, path: filepath.Join(t.TempDir(), "islet.db")}
	w.start()
	t.Cleanup(func() { w.db.Close() })
	return w
}

// start opens the store and creates a Manager, as a starting agent does.
func (w *world) start() {
	w.t.Helper()
	if w.db != nil {
		w.db.Close()
	}
	var err error
	if w.db, err = store.Open(context.Background(), w.path, slog.New(slog.DiscardHandler)); err != nil {
		w.t.Fatal(err)
	}
	w.Manager = New(Config{Store: w.db, Log: slog.New(slog.DiscardHandler),
		Changed:    func() { w.mu.Lock(); w.changed++; w.mu.Unlock() },
		PodChanged: func(uid types.UID) { w.mu.Lock(); w.touched = append(w.touched, uid); w.mu.Unlock() },
	})
	if err := w.Load(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// pod stores a pod with one container for each element of counts. Each count is the number of the container's devices. Counts before "|"
// are those of init containers, and the suffix s makes an init container a sidecar.
func (w *world) pod(name string, counts ...string) *v1.Pod {
	w.t.Helper()
	p := podtest.New(name, podtest.UID("uid-"+name), podtest.Containers())
	init := slices.Contains(counts, "|")
	for i, c := range counts {
		if c == "|" {
			init = false
			continue
		}
		ctr := v1.Container{Name: "c" + string(rune('0'+i)), Image: "i"}
		if n, ok := strings.CutSuffix(c, "s"); ok {
			c = n
			ctr.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		ctr.Resources.Limits = v1.ResourceList{thing: resource.MustParse(c), "example.com/unknown": resource.MustParse("1")}
		if init {
			p.Spec.InitContainers = append(p.Spec.InitContainers, ctr)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, ctr)
		}
	}
	if err := w.db.UpdatePods(context.Background(), []store.Pod{{Pod: p, Source: "file", Origin: name}}, nil); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) connect(p Provider, ids ...string) *Link {
	w.t.Helper()
	l, err := w.Connect(context.Background(), thing, p)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := l.Devices(healthy(ids...)); err != nil {
		w.t.Fatal(err)
	}
	return l
}

func healthy(ids ...string) (out []Device) {
	for _, id := range ids {
		out = append(out, Device{ID: id, Healthy: true})
	}
	return out
}

func (w *world) admit(p *v1.Pod, refusal string) {
	w.t.Helper()
	_, got, err := w.Admit(context.Background(), p)
	if err != nil || !strings.Contains(got, refusal) || refusal == "" && got != "" {
		w.t.Errorf("%s: refused by %q, %v; not by %q", p.Name, got, err, refusal)
	}
}

// grantedIDs returns the devices of the pod's containers, such as "c0=a,b c1=c".
func (w *world) grantedIDs(p *v1.Pod) string {
	var out []string
	for _, h := range w.Holdings() {
		if h.UID == p.UID && h.Resource == thing {
			out = append(out, h.Container+"="+strings.Join(h.IDs, ","))
		}
	}
	return strings.Join(out, " ")
}

// A shop is a fake Provider.
type shop struct {
	mu      sync.Mutex
	asked   []string
	fail    error
	prefers []string
	now     *Allocation
}

func (s *shop) Allocate(_ context.Context, r Request) (Allocation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Container.Name+"="+strings.Join(r.IDs, ","))
	return Allocation{Env: map[string]string{"THING": strings.Join(r.IDs, ",")}, Nodes: []Node{{"/dev/null", "/dev/thing", "rw"}}, CDI: []string{"example.com/thing=" + r.IDs[0]}}, s.fail
}

func (s *shop) Start(context.Context, Request) (*Allocation, error) { return s.now, nil }

func (s *shop) PreferredDevices(context.Context, Choice) ([]string, error) { return s.prefers, nil }

// TestSameDevices checks that a container keeps its devices after restarts of the agent, even if the provider is absent. While the provider
// is absent, the container does not start.
func TestSameDevices(t *testing.T) {
	w := newWorld(t)
	s := &shop{prefers: []string{"c", "no such"}}
	w.connect(s, "a", "b", "c")
	p := w.pod("web", "2")
	w.admit(p, "")
	if got := w.grantedIDs(p); got != "c0=a,c" {
		t.Fatalf("devices %q", got)
	}
	w.start()
	if got := w.grantedIDs(p); got != "c0=a,c" {
		t.Fatalf("devices after a restart: %q", got)
	}
	w.admit(p, "") // after a reboot the provider has not connected yet
	if err := w.Prepare(t.Context(), p); err != nil {
		t.Error(err)
	}
	if err := w.Start(t.Context(), p, &p.Spec.Containers[0]); !errors.Is(err, errNoProvider) {
		t.Errorf("without its provider: %v", err)
	}
	l := w.connect(s, "a", "b", "c")
	if err := w.Start(t.Context(), p, &p.Spec.Containers[0]); err != nil {
		t.Error(err)
	}
	cfg := &api.ContainerConfig{}
	if err := w.Container(t.Context(), p, &p.Spec.Containers[0], cfg); err != nil {
		t.Fatal(err)
	}
	if len(cfg.Envs) != 1 || string(cfg.Envs[0].Value) != "a,c" || len(cfg.Devices) != 1 || cfg.Devices[0].Permissions != "rw" ||
		len(cfg.CDIDevices) != 1 {
		t.Errorf("configuration %v", cfg)
	}
	if len(s.asked) != 1 {
		t.Errorf("calls of the provider: %q", s.asked)
	}
	list := healthy("a", "b", "c")
	list[2].Healthy, list[2].Message = false, "on fire"
	if err := l.Devices(list); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context(), p, &p.Spec.Containers[0]); err == nil || !strings.Contains(err.Error(), "on fire") {
		t.Errorf("with an unhealthy device: %v", err)
	}
	st := w.Status(p.UID, "c0")
	if len(st) != 1 || st[0].Resources[0].Health != v1.ResourceHealthStatusHealthy ||
		st[0].Resources[1].Health != v1.ResourceHealthStatusUnhealthy || *st[0].Resources[1].Message != "on fire" {
		t.Errorf("its status is %+v", st)
	}
	if !slices.Contains(w.touched, p.UID) {
		t.Error("the pod was not notified")
	}
}

// TestGivenBack checks that other pods can use the devices of a finished pod. The finished pod cannot start again while its devices are in
// use.
func TestGivenBack(t *testing.T) {
	w := newWorld(t)
	w.connect(&shop{}, "a", "b")
	first, second := w.pod("first", "2"), w.pod("second", "1")
	w.admit(first, "")
	w.admit(second, "Allocate failed due to requested number of devices unavailable for example.com/thing. Requested: 1, Available: 0, which is unexpected")
	before := w.changed
	if err := w.Ended(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if w.changed == before {
		t.Error("the change of the allocatable devices was not reported")
	}
	w.admit(second, "")
	if err := w.Prepare(t.Context(), first); err == nil { // the first pod runs again
		t.Error("Prepare succeeded with one free device")
	}
	w.start()
	if first, second := w.grantedIDs(first), w.grantedIDs(second); first != "" || second != "c0=a" {
		t.Errorf("devices after a restart: %q and %q", first, second)
	}
}

// TestInitContainers checks that the devices of an init container are available to later containers. The devices of a sidecar are not.
func TestInitContainers(t *testing.T) {
	w := newWorld(t)
	w.connect(&shop{}, "a", "b", "c")
	p := w.pod("pod", "2", "1s", "|", "2")
	w.admit(p, "")
	if got := w.grantedIDs(p); got != "c0=a,b c1=a c3=b,c" {
		t.Errorf("devices %q", got)
	}
}

// TestRefused checks that a pod is rejected if one of its containers does not get its devices. A rejected pod holds no device.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	l := w.connect(&shop{}, "a", "b")
	w.admit(w.pod("both", "1", "2"), "requested number of devices unavailable")
	w.admit(w.pod("all", "2"), "")
	s := &shop{fail: errors.New("rpc error: it burns")}
	w.connect(s, "a", "b", "c")
	l.Close() // closing the connection of the earlier provider has no effect
	p := w.pod("burns", "1")
	w.admit(p, "Allocate failed due to rpc error: it burns, which is unexpected")
	s.fail = nil
	w.admit(p, "")
	if got := w.grantedIDs(p); got != "c0=c" {
		t.Errorf("devices %q", got)
	}
}

// TestCapacity checks that the Node's capacity is the number of listed devices and its allocatable the number of healthy ones. When the
// provider is disconnected, the allocatable is 0.
func TestCapacity(t *testing.T) {
	w := newWorld(t)
	if c, a := w.Resources(); len(c)+len(a) != 0 {
		t.Fatal("resources without providers:", c, a)
	}
	check := func(when string, capacity, allocatable int64) {
		t.Helper()
		c, a := w.Resources()
		if c.Name(thing, resource.DecimalSI).Value() != capacity || a.Name(thing, resource.DecimalSI).Value() != allocatable {
			t.Errorf("%s: %v, %v", when, c, a)
		}
	}
	l := w.connect(&shop{}, "a", "b")
	check("at first", 2, 2)
	list := healthy("a", "b")
	list[0].Healthy = false
	if err := l.Devices(list); err != nil {
		t.Fatal(err)
	}
	check("with a sick one", 2, 1)
	l.Close()
	check("without its provider", 2, 0)
	w.admit(w.pod("p", "1"), "no healthy devices present; cannot allocate unhealthy devices example.com/thing")
	w.start()
	check("after a restart", 0, 0)
	if c, _ := w.Resources(); len(c) != 1 {
		t.Error("the Node does not say zero:", c)
	}
	room := v1.ResourceList{thing: resource.MustParse("7"), "example.com/other": resource.MustParse("7")}
	w.RemoveManaged(room)
	if _, there := room[thing]; there || len(room) != 1 {
		t.Errorf("the allocatable for pods is %v", room)
	}
}

func TestClaimsOfProviders(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"", "cpu", "kubernetes.io/x", "requests.example.com/x", "a/b/c", "example.com/" + strings.Repeat("x", 64)} {
		if _, err := w.Connect(t.Context(), name, &shop{}); err == nil {
			t.Errorf("the name %q is accepted", name)
		}
	}
	l := w.connect(&shop{})
	if l.Devices(make([]Device, maxDevices+1)) == nil || l.Devices([]Device{{}}) == nil {
		t.Error("invalid lists are accepted")
	}
	for name, a := range map[string]Allocation{
		"relative":   {Mounts: []Mount{{Host: "a", Container: "/a"}}},
		"empty":      {Nodes: []Node{{"/dev/null", "", "rw"}}},
		"permission": {Nodes: []Node{{"/dev/null", "/dev/x", "rwx"}}},
		"variable":   {Env: map[string]string{"A=B": ""}},
		"zero":       {CDI: []string{"a\x00"}},
		"many":       {Groups: make([]int64, maxEntries+1)},
		"much":       {CDI: slices.Repeat([]string{strings.Repeat("x", 1<<10)}, maxAllocation>>10+1)},
	} {
		if a.check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A yieldCounter is a Provider that counts calls of Yield.
type yieldCounter struct {
	shop
	gone int
}

func (y *yieldCounter) Yield(error) { y.gone++ }

// TestManyLists checks that the lists of all resources share one size limit. A list may be replaced by one of the same size. Space becomes
// available when a resource is removed or lists fewer devices.
func TestManyLists(t *testing.T) {
	w := newWorld(t)
	list := make([]Device, maxListed/4/1152+1)
	for i := range list {
		list[i] = Device{ID: fmt.Sprintf("%0*d", maxID, i)}
	}
	var links []*Link
	for i := range 4 {
		l, err := w.Connect(t.Context(), fmt.Sprint("example.com/r", i), &yieldCounter{})
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, l)
		for range 2 {
			if err := l.Devices(list); (err != nil) != (i == 3) {
				t.Fatalf("list %d: %v", i, err)
			}
		}
	}
	if err := links[0].Devices(list[:1]); err != nil {
		t.Fatal(err)
	}
	if err := links[3].Devices(list); err != nil {
		t.Errorf("an error although the lists fit: %v", err)
	}
	links[2].Close()
	if err := links[0].Devices(list); err != nil {
		t.Errorf("the list of a disconnected provider is counted: %v", err)
	}
}

// TestGreedyProvider checks that a provider with a list of maximal size is disconnected when providers with smaller lists need the space. A
// provider without the method Yield stays connected. An example is the provider of the node's own devices.
func TestGreedyProvider(t *testing.T) {
	w := newWorld(t)
	list := make([]Device, maxListed/1152)
	for i := range list {
		list[i] = Device{ID: fmt.Sprintf("%0*d", maxID, i)}
	}
	connect := func(name string, p Provider, n int) error {
		l, err := w.Connect(t.Context(), "example.com/"+name, p)
		if err != nil {
			t.Fatal(err)
		}
		return l.Devices(list[:n])
	}
	own, greedy, other := &shop{}, &yieldCounter{}, &yieldCounter{}
	for _, c := range []struct {
		name string
		p    Provider
		n    int
	}{{"own", own, 10}, {"greedy", greedy, len(list) - 10}, {"other", other, 100}} {
		if err := connect(c.name, c.p, c.n); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	if greedy.gone != 1 || other.gone != 0 {
		t.Errorf("the greedy provider was disconnected %d times, the other one %d times", greedy.gone, other.gone)
	}
	has := func(name string) int64 {
		c, _ := w.Resources()
		q := c[v1.ResourceName("example.com/"+name)]
		return q.Value()
	}
	if has("own") != 10 || has("greedy") != 0 || has("other") != 100 {
		t.Errorf("the Node has %d, %d and %d devices", has("own"), has("greedy"), has("other"))
	}
	if err := connect("greedy", greedy, len(list)-10); err == nil || greedy.gone != 1 || has("other") != 100 {
		t.Errorf("the greedy one again: %v", err)
	}
	if err := connect("greedy", greedy, len(list)-110); err != nil {
		t.Errorf("a list for the remaining space: %v", err)
	}
}

// TestNewPaths checks that a provider may change the paths of a device before each start of a container.
func TestNewPaths(t *testing.T) {
	w := newWorld(t)
	s := &shop{}
	w.connect(s, "a")
	p := w.pod("p", "1")
	w.admit(p, "")
	s.now = &Allocation{Nodes: []Node{{"/dev/full", "/dev/thing", "r"}}, Groups: []int64{7}}
	if err := w.Start(t.Context(), p, &p.Spec.Containers[0]); err != nil {
		t.Fatal(err)
	}
	w.start()
	cfg := &api.ContainerConfig{Linux: &api.LinuxContainerConfig{SecurityContext: &api.LinuxContainerSecurityContext{}}}
	if err := w.Container(t.Context(), p, &p.Spec.Containers[0], cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.Devices[0].HostPath != "/dev/full" || len(cfg.Envs) != 0 || !slices.Equal(cfg.Linux.SecurityContext.SupplementalGroups, []int64{7}) {
		t.Errorf("configuration %v", cfg)
	}
}
