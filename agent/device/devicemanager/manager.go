package devicemanager

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
)

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
	TakeDevices(ctx context.Context, uid types.UID, resources ...string) error
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
	weight    int         // memory of devices in bytes
	goneSince time.Time   // when the provider disconnected
	expired   bool        // the provider disconnected more than capacityGrace ago
	expiry    *time.Timer // sets expired; stopped while a provider is connected, and nil before the first disconnection
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

// Resources returns the capacity of each resource, which is the number of its devices, and the allocatable quantity,
// which is the number of its healthy devices. Both are zero for a resource whose provider disconnected more than
// capacityGrace ago.
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

// RemoveManaged adjusts the free resources with which pods are admitted. It removes the resources that have devices, because
// Admit allocates these individually. It sets resources without a provider and without allocated devices to zero.
func (m *Manager) RemoveManaged(room v1.ResourceList) {
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

// rowsOf returns a container's allocations, by resource.
func (m *Manager) rowsOf(uid types.UID, container string) map[string]row {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]row{}
	for k, g := range m.grants[uid] {
		if k.container == container && !g.pending {
			out[k.resource] = g.row
		}
	}
	return out
}

// Name returns the hook's name.
func (*Manager) Name() string { return "devices" }
