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
)

// capacityGrace is how long a resource without its provider stays in the Node's capacity, as with a
// kubelet.
const capacityGrace = 5 * time.Minute

// Bounds of what providers may say.
const (
	maxResources = 256
	maxDevices   = 1 << 16  // of a resource
	maxID        = 1 << 10  // bytes
	maxListed    = 16 << 20 // bytes of memory that the lists of all resources take
)

// metaResources is the key under which the store has the names of the resources that had a
// provider, as JSON: after a restart of the agent the Node has none of them until their
// providers are back.
const metaResources = "device-resources"

// A Store keeps what was given. *store.Store is one.
type Store interface {
	Devices(ctx context.Context) ([]store.Devices, error)
	GiveDevices(ctx context.Context, rows []store.Devices) error
	TakeDevices(ctx context.Context, uid types.UID) error
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config is what a Manager needs.
type Config struct {
	Store Store
	// Changed is called when the Node has other devices, or they were given back. It must not
	// block, and may call the Manager. Nil: nobody wants to know.
	Changed func()
	// PodChanged is the same for the devices of a pod: their health, or they are back, so that
	// a container that waits for them may start.
	PodChanged func(types.UID)
	Log        *slog.Logger
}

// A Manager is a hook for the life of pods, and safe for concurrent use.
type Manager struct {
	c Config

	namesMu sync.Mutex // held while names are stored; comes before mu
	names  []string   // what the store has under metaResources

	mu        sync.Mutex // not held while a provider or the store is asked
	resources map[string]*resourceState
	grants     map[types.UID]map[key]*grant
	shortages     uint64 // counts requests for which there were too few devices
}

// A key is of one resource that a container asks for.
type key struct{ container, resource string }

// A grant is what a container was given of one resource.
type grant struct {
	row
	pending bool // it is being asked for and stored
}

// A row is the stored form of a grant.
type row struct {
	IDs        []string           `json:"ids"`            // sorted
	NUMA       map[string][]int64 `json:"numa,omitempty"` // by ID
	Allocation Allocation         `json:"allocation"`
}

type resourceState struct {
	link    *Link // nil: its provider is gone
	devices map[string]Device
	weight  int       // bytes of memory of devices
	goneSince    time.Time // when its provider went
	expired bool      // it was gone for longer than grace
}

// New reads nothing.
func New(c Config) *Manager {
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.PodChanged == nil {
		c.PodChanged = func(types.UID) {}
	}
	return &Manager{c: c, resources: map[string]*resourceState{}, grants: map[types.UID]map[key]*grant{}}
}

// Load takes over what the last run of the agent gave. It is called before any other method.
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
			m.c.Log.Error("the names of resources with devices cannot be read: the Node has them until their providers are back", "error", err)
		}
		for _, name := range m.names {
			m.resources[name] = &resourceState{goneSince: time.Now()}
			m.expireLater(name)
		}
	}
	for _, r := range rows {
		if !strings.Contains(r.Resource, "/") {
			continue // CPUs and memory, which others give
		}
		g := &grant{}
		if err := json.Unmarshal(r.Given, &g.row); err != nil {
			m.c.Log.Error("the devices of a container cannot be read: it gets others", "row", string(r.UID)+"/"+r.Container, "resource", r.Resource, "error", err)
			continue
		}
		m.put(r.UID, key{r.Container, r.Resource}, g)
	}
	return nil
}

// put notes a grant. The caller holds mu.
func (m *Manager) put(uid types.UID, k key, g *grant) {
	if m.grants[uid] == nil {
		m.grants[uid] = map[key]*grant{}
	}
	m.grants[uid][k] = g
}

// A Link is the connection of a Provider with the Manager.
type Link struct {
	m        *Manager
	resource string
	provider Provider
}

// Connect makes a provider the one of a resource, in place of another. It has no devices
// yet; those that were healthy before count as unhealthy until Devices is called.
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

// CheckName says what is wrong with the name of a resource that is to have devices.
func CheckName(name string) error {
	native := !strings.Contains(name, "/") || strings.Contains(name, v1.ResourceDefaultNamespacePrefix) || strings.HasPrefix(name, v1.DefaultResourceRequestsPrefix)
	if native || len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+name)) > 0 {
		return fmt.Errorf("the ResourceName %q is invalid", name) // as a kubelet says it
	}
	return nil
}

// addName durably notes that a resource has a provider. The caller holds naming.
func (m *Manager) addName(ctx context.Context, name string) error {
	if slices.Contains(m.names, name) {
		return nil
	}
	if len(m.names) >= maxResources {
		return fmt.Errorf("this node has devices of %d resources already", maxResources)
	}
	return m.storeNames(ctx, append(slices.Clone(m.names), name))
}

// storeNames stores the names of resources. The caller holds naming.
func (m *Manager) storeNames(ctx context.Context, names []string) error {
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	if err := m.c.Store.SetMeta(ctx, metaResources, string(text)); err != nil {
		return fmt.Errorf("note the resources that have devices: %w", err)
	}
	m.names = names
	return nil
}

// Devices says which devices there are now, instead of those of before.
func (l *Link) Devices(list []Device) error {
	if len(list) > maxDevices {
		return fmt.Errorf("resource %s has %d devices, more than %d", l.resource, len(list), maxDevices)
	}
	now, weight := make(map[string]Device, len(list)), 0
	for _, d := range list {
		if d.ID == "" || len(d.ID) > maxID {
			return fmt.Errorf("resource %s has a device whose ID has %d bytes: 1 to %d can be", l.resource, len(d.ID), maxID)
		}
		now[d.ID] = d
		weight += d.weight()
	}
	m := l.m
	m.mu.Lock()
	r := m.resources[l.resource]
	if r.link != l { // there is another one by now
		m.mu.Unlock()
		return nil
	}
	victim, touched, fits := m.makeRoom(r, weight)
	if !fits {
		m.mu.Unlock()
		return fmt.Errorf("the devices of resource %s take %d bytes of memory: with those of other resources that is more than %d", l.resource, weight, maxListed)
	}
	before := r.devices
	r.devices, r.weight = now, weight
	touched = append(touched, m.affectedPods(l.resource, before, now)...)
	m.mu.Unlock()
	m.notify(!sameHealth(before, now) || victim != nil, touched)
	if victim != nil {
		victim.Yield(fmt.Errorf("the lists of devices of all resources take more than %d bytes of memory, and this one the most", maxListed))
	}
	return nil
}

// sameHealth reports whether two lists come to the same capacity and allocatable devices.
func sameHealth(a, b map[string]Device) bool {
	return maps.EqualFunc(a, b, func(x, y Device) bool { return x.Healthy == y.Healthy })
}

// affectedPods lists the pods of which a device changed. The caller holds mu.
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

// Close says that the provider is gone. What it had is unhealthy at once, and no longer in
// the Node's capacity after a while. A second call does nothing.
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
		d.Healthy, d.Message = false, "its provider is gone"
		r.devices[id] = d
	}
	touched := m.affectedPods(l.resource, before, r.devices)
	m.expireLater(l.resource)
	m.mu.Unlock()
	m.notify(true, touched)
}

// expireLater takes a resource out of the capacity unless its provider comes back. The
// caller holds mu.
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

// removeName takes a resource off the list of those that an agent waits for.
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
		m.c.Log.Warn("a resource whose provider is gone is waited for again after a restart", "resource", name, "error", err)
	}
}

// Resources are what the Node has of devices. What had a provider before has zero.
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

// Room corrects what pods are measured against: devices are not counted but given one by
// one, when a pod is admitted; of a resource whose provider is gone for good there is
// nothing.
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

// inUse reports whether a container has devices of a resource. The caller holds mu.
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

// A Resource is one with its devices, for those who show it.
type Resource struct {
	Name    string
	Gone    time.Time // since when it has no provider; zero: it has one
	Devices []Device  // by ID
}

// List gives all resources by name.
func (m *Manager) List() (out []Resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.resources {
		all := slices.SortedFunc(maps.Values(r.devices), func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
		out = append(out, Resource{name, r.goneSince, all})
	}
	slices.SortFunc(out, func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// A Held is what a container has of a resource.
type Held struct {
	UID       types.UID // of the pod
	Container string
	Resource  string
	IDs       []string           // sorted
	NUMA      map[string][]int64 // by ID, for those that have any
}

// Held gives all that containers have, by pod, container and resource.
func (m *Manager) Held() (out []Held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, grants := range m.grants {
		for k, g := range grants {
			if !g.pending {
				out = append(out, Held{uid, k.container, k.resource, g.IDs, g.NUMA})
			}
		}
	}
	slices.SortFunc(out, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Resource, b.Resource))
	})
	return out
}
