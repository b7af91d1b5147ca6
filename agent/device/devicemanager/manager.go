package devicemanager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/sorting"
)

// capacityGrace is the time for which a resource stays in the Node's capacity after its provider has disconnected. A
// kubelet has the same value.
const capacityGrace = 5 * time.Minute

// Limits of the lists of devices.
const (
	maxResources = 256
	maxDevices   = 1 << 16  // devices of one resource
	maxID        = 1 << 10  // bytes
	maxListed    = 16 << 20 // bytes of memory for all lists
)

// metaResources is the key under which the names of the resources that had a provider are stored, as JSON. After a
// restart of the agent the capacity of these resources is zero until their providers connect.
const metaResources = "device-resources"

// A Store stores allocations. *store.Store implements it.
type Store interface {
	Devices(ctx context.Context) ([]store.Devices, error)
	GiveDevices(ctx context.Context, rows []store.Devices) error
	TakeDevices(ctx context.Context, uid types.UID) error
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config is the input of New.
type Config struct {
	Store Store
	// Changed is called when the Node's devices have changed or devices were released. It must not block, and may
	// call the Manager. It may be nil.
	Changed func()
	// PodChanged is called when the health of a pod's device has changed or the device is listed again. A container
	// that waits for the device may then start. It must not block and may be nil.
	PodChanged func(types.UID)
	Log        *slog.Logger
}

// A Manager allocates devices. It implements a hook of the pod lifecycle, and is safe for concurrent use.
type Manager struct {
	c Config

	namesMu sync.Mutex // locked while names are stored; locked before mu
	names   []string   // the names that are stored under metaResources

	mu        sync.Mutex // not locked during calls to a provider or the store
	resources map[string]*resourceState
	grants    map[types.UID]map[key]*grant
	shortages uint64 // number of requests that failed for lack of devices
}

// A key identifies a container of a pod and a resource that it requests.
type key struct{ container, resource string }

// A grant is the allocation of one resource's devices to a container.
type grant struct {
	row
	pending bool // not stored yet
}

// A row is the stored form of a grant.
type row struct {
	IDs        []string           `json:"ids"`            // sorted
	NUMA       map[string][]int64 `json:"numa,omitempty"` // by ID
	Allocation Allocation         `json:"allocation"`
}

type resourceState struct {
	link      *Link // nil if no provider is connected
	devices   map[string]Device
	weight    int       // memory of devices in bytes
	goneSince time.Time // when the provider disconnected
	expired   bool      // the provider disconnected more than capacityGrace ago
}

// New returns a Manager. It does no I/O.
func New(c Config) *Manager {
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.PodChanged == nil {
		c.PodChanged = func(types.UID) {}
	}
	return &Manager{c: c, resources: map[string]*resourceState{}, grants: map[types.UID]map[key]*grant{}}
}

// Load loads the stored allocations. It is called before any other method.
func (m *Manager) Load(ctx context.Context) error {
	rows, err := m.c.Store.Devices(ctx)
	if err != nil {
		return err
	}
	text, found, err := m.c.Store.Meta(ctx, metaResources)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if found {
		if err := json.Unmarshal([]byte(text), &m.names); err != nil {
			m.c.Log.Error("cannot decode the stored names of resources with devices: "+
				"the Node keeps their last capacity until their providers connect", "error", err)
		}
		for _, name := range m.names {
			m.resources[name] = &resourceState{goneSince: time.Now()}
			m.expireLater(name)
		}
	}
	for _, r := range rows {
		if !strings.Contains(r.Resource, "/") {
			continue // package pinning loads the rows of CPUs and memory
		}
		g := &grant{}
		if err := json.Unmarshal(r.Given, &g.row); err != nil {
			m.c.Log.Error("cannot decode the stored devices of a container: the container gets new devices",
				"row", string(r.UID)+"/"+r.Container, "resource", r.Resource, "error", err)
			continue
		}
		m.put(r.UID, key{r.Container, r.Resource}, g)
	}
	return nil
}

// put records a grant. The caller holds mu.
func (m *Manager) put(uid types.UID, k key, g *grant) {
	if m.grants[uid] == nil {
		m.grants[uid] = map[key]*grant{}
	}
	m.grants[uid][k] = g
}

// A Link is the connection of a Provider to the Manager.
type Link struct {
	m        *Manager
	resource string
	provider Provider
}

// Connect makes p the provider of a resource. It replaces the current provider, whose list of devices stays valid
// until Link.Devices is called.
func (m *Manager) Connect(ctx context.Context, name string, p Provider) (*Link, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	m.namesMu.Lock()
	defer m.namesMu.Unlock()
	if err := m.addName(ctx, name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[name]
	if r == nil {
		r = &resourceState{}
		m.resources[name] = r
	}
	l := &Link{m, name, p}
	r.link, r.goneSince, r.expired = l, time.Time{}, false
	return l, nil
}

// CheckName returns an error if name is not a valid name of an extended resource.
func CheckName(name string) error {
	native := !strings.Contains(name, "/") || strings.Contains(name, v1.ResourceDefaultNamespacePrefix) ||
		strings.HasPrefix(name, v1.DefaultResourceRequestsPrefix)
	if native || len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+name)) > 0 {
		return fmt.Errorf("the ResourceName %q is invalid", name) // a kubelet's words
	}
	return nil
}

// addName stores the name of a resource that has a provider. The caller holds namesMu.
func (m *Manager) addName(ctx context.Context, name string) error {
	if slices.Contains(m.names, name) {
		return nil
	}
	if len(m.names) >= maxResources {
		return fmt.Errorf("this node already has devices of %d resources, the maximum", maxResources)
	}
	return m.storeNames(ctx, append(slices.Clone(m.names), name))
}

// storeNames stores the names of resources. The caller holds namesMu.
func (m *Manager) storeNames(ctx context.Context, names []string) error {
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	if err := m.c.Store.SetMeta(ctx, metaResources, string(text)); err != nil {
		return fmt.Errorf("store the names of resources with devices: %w", err)
	}
	m.names = names
	return nil
}

// Devices replaces the list of the resource's devices. It returns an error, and keeps the old
// list, if the new one exceeds a limit.
func (l *Link) Devices(list []Device) error {
	if len(list) > maxDevices {
		return fmt.Errorf("resource %s has %d devices, but the maximum is %d", l.resource, len(list), maxDevices)
	}
	now, weight := make(map[string]Device, len(list)), 0
	for _, d := range list {
		if d.ID == "" || len(d.ID) > maxID {
			return fmt.Errorf("resource %s has a device with an ID of %d bytes: an ID must have 1 to %d", l.resource, len(d.ID), maxID)
		}
		now[d.ID] = d
		weight += d.weight()
	}
	m := l.m
	m.mu.Lock()
	r := m.resources[l.resource]
	if r.link != l { // another provider has connected
		m.mu.Unlock()
		return nil
	}
	victim, touched, fits := m.makeRoom(r, weight)
	if !fits {
		m.mu.Unlock()
		return fmt.Errorf("the list of devices of resource %s needs %d bytes of memory: all lists together would exceed %d",
			l.resource, weight, maxListed)
	}
	before := r.devices
	r.devices, r.weight = now, weight
	touched = append(touched, m.affectedPods(l.resource, before, now)...)
	m.mu.Unlock()
	m.notify(!sameHealth(before, now) || victim != nil, touched)
	if victim != nil {
		victim.Yield(fmt.Errorf("the lists of devices of all resources exceed %d bytes of memory, and this list is the largest",
			maxListed))
	}
	return nil
}

// sameHealth reports whether two lists contain the same devices with the same health.
func sameHealth(a, b map[string]Device) bool {
	return maps.EqualFunc(a, b, func(x, y Device) bool { return x.Healthy == y.Healthy })
}

// affectedPods lists the pods that have a device whose health has changed or that was added or removed. The caller
// holds mu.
func (m *Manager) affectedPods(name string, before, now map[string]Device) (out []types.UID) {
	for uid, grants := range m.grants {
		for k, g := range grants {
			changed := func(id string) bool {
				a, had := before[id]
				b, has := now[id]
				return had != has || a.Healthy != b.Healthy || a.Message != b.Message
			}
			if k.resource == name && slices.ContainsFunc(g.IDs, changed) {
				out = append(out, uid)
				break
			}
		}
	}
	return out
}

func (m *Manager) notify(node bool, pods []types.UID) {
	if node {
		m.c.Changed()
	}
	for _, uid := range pods {
		m.c.PodChanged(uid)
	}
}

// Close disconnects the provider. Its devices become unhealthy at once and leave the Node's capacity after
// capacityGrace. A second call does nothing.
func (l *Link) Close() {
	m := l.m
	m.mu.Lock()
	r := m.resources[l.resource]
	if r.link != l {
		m.mu.Unlock()
		return
	}
	before := r.devices
	r.link, r.goneSince, r.devices = nil, time.Now(), make(map[string]Device, len(before))
	for id, d := range before {
		d.Healthy, d.Message = false, "its provider is not connected"
		r.devices[id] = d
	}
	touched := m.affectedPods(l.resource, before, r.devices)
	m.expireLater(l.resource)
	m.mu.Unlock()
	m.notify(true, touched)
}

// expireLater sets the capacity of a resource to zero after capacityGrace, unless a provider has connected by then.
// The caller holds mu.
func (m *Manager) expireLater(name string) {
	gone := m.resources[name].goneSince
	time.AfterFunc(capacityGrace, func() {
		m.mu.Lock()
		r := m.resources[name]
		expired := r.link == nil && r.goneSince.Equal(gone)
		if expired {
			r.expired, r.devices = true, nil
		}
		m.mu.Unlock()
		if expired {
			m.removeName(name)
			m.c.Changed()
		}
	})
}

// removeName removes a resource without a provider from the stored names.
func (m *Manager) removeName(name string) {
	m.namesMu.Lock()
	defer m.namesMu.Unlock()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	m.mu.Lock()
	back := m.resources[name].link != nil
	m.mu.Unlock()
	if back {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(m.names), func(n string) bool { return n == name })
	if err := m.storeNames(ctx, rest); err != nil && !errors.Is(err, store.ErrClosed) {
		m.c.Log.Warn("cannot remove the stored name of a resource without a provider", "resource", name, "error", err)
	}
}

// Resources returns the number of devices by resource. capacity counts all of them, allocatable the healthy ones.
// Both are zero for a resource whose provider has expired.
func (m *Manager) Resources() (capacity, allocatable v1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = v1.ResourceList{}, v1.ResourceList{}
	for name, r := range m.resources {
		healthy := 0
		for _, d := range r.devices {
			if d.Healthy {
				healthy++
			}
		}
		capacity[v1.ResourceName(name)] = *resource.NewQuantity(int64(len(r.devices)), resource.DecimalSI)
		allocatable[v1.ResourceName(name)] = *resource.NewQuantity(int64(healthy), resource.DecimalSI)
	}
	return capacity, allocatable
}

// Room adjusts the free resources with which pods are admitted. It removes the resources that have devices, because
// Admit allocates these individually. It sets resources without a provider and without allocated devices to zero.
func (m *Manager) Room(room v1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.resources {
		if r.expired && !m.inUse(name) {
			room[v1.ResourceName(name)] = resource.Quantity{}
		} else {
			delete(room, v1.ResourceName(name))
		}
	}
}

// inUse reports whether any container has devices of a resource. The caller holds mu.
func (m *Manager) inUse(name string) bool {
	for _, grants := range m.grants {
		for k := range grants {
			if k.resource == name {
				return true
			}
		}
	}
	return false
}

// A Resource describes a resource with its devices.
type Resource struct {
	Name    string
	Gone    time.Time // when its provider disconnected; zero if it is connected
	Devices []Device  // sorted by ID
}

// List returns all resources, sorted by name.
func (m *Manager) List() (out []Resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.resources {
		all := slices.SortedFunc(maps.Values(r.devices), func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
		out = append(out, Resource{name, r.goneSince, all})
	}
	sorting.By(out, func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// A Holding lists the devices of one resource that are allocated to a container.
type Holding struct {
	UID       types.UID // of the pod
	Container string
	Resource  string
	IDs       []string           // sorted
	NUMA      map[string][]int64 // by ID, for the devices with NUMA nodes
}

// Holdings returns all stored allocations, sorted by pod, container and resource.
func (m *Manager) Holdings() (out []Holding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, grants := range m.grants {
		for k, g := range grants {
			if !g.pending {
				out = append(out, Holding{uid, k.container, k.resource, g.IDs, g.NUMA})
			}
		}
	}
	sorting.By(out, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Resource, b.Resource))
	})
	return out
}
