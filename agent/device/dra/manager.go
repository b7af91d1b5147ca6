package dra

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
)

// A Store keeps claims. *store.Store is one.
type Store interface {
	Claims(ctx context.Context) ([]store.Claim, error)
	PutClaims(ctx context.Context, claims []store.Claim) error
	RemoveClaims(ctx context.Context, claims []store.Claim) error
}

// Objects read the claims that a pod names. *object.Cache is one.
type Objects interface {
	ResourceClaim(pod *v1.Pod, name string) (*resourcev1.ResourceClaim, error)
	// Renew has what the pod names read again.
	Renew(ctx context.Context, pod *v1.Pod) error
}

// Config is what a Manager needs.
type Config struct {
	Store   Store
	Objects Objects // nil: the node stands alone, and has no claims
	// PodChanged is called when the health of a device of a pod changed, or a driver that it
	// waits for is here. It must not block. Nil: nobody wants to know.
	PodChanged func(types.UID)
	// Slices is told which drivers can be reached. *resourceslice.Sweeper is one. Nil:
	// nobody wants to know.
	Slices  Slices
	Counted Counter // nil: nobody counts
	Log     *slog.Logger
}

// Slices keeps what drivers said of this node in the API while they can be reached. It must
// not block.
type Slices interface {
	Here(driver string)
	Gone(driver string)
}

// A Counter is told what a kubelet counts of dynamic resources.
type Counter interface {
	// DRAOperation is one for all claims of a pod: PrepareResources or UnprepareResources.
	DRAOperation(name string, failed bool, took time.Duration)
	// DRACall is one of a driver, with the name of gRPC's status code.
	DRACall(driver, method, code string, took time.Duration)
}

type noCounter struct{}

func (noCounter) DRAOperation(string, bool, time.Duration)      {}
func (noCounter) DRACall(string, string, string, time.Duration) {}

// A Manager is a hook for the life of pods, and takes drivers from package plugins.
type Manager struct {
	c   Config
	ctx context.Context // of what listens to drivers
	cancel context.CancelFunc
	group sync.WaitGroup

	mu      sync.Mutex // not held while a driver or the store is asked
	claims  map[types.UID]*claim
	drivers map[string][]*driver          // by name, the latest last
	waiting map[string]map[types.UID]bool // pods that wait for a driver
	reachable    map[string]bool               // of drivers, whether Slices knows that they can be reached
}

// A claim is one that is prepared, or may be.
type claim struct {
	uid             types.UID
	namespace, name string
	busy            chan struct{} // capacity 1: held by who has it prepared or taken back

	// These are guarded by Manager.mu.
	pods  map[types.UID]bool
	parts map[string]*part // by driver
}

// A part of a claim is what one driver has of it.
type part struct {
	devices  []Device
	prepared bool // in this run of the agent
}

// A Device is one that a driver prepared. It is stored as JSON, so its fields keep their
// names.
type Device struct {
	Requests []string `json:"requests,omitempty"` // of the claim; none: all
	Pool     string   `json:"pool"`
	Name     string   `json:"name"`
	Share    string   `json:"share,omitempty"`
	CDI      []string `json:"cdi,omitempty"`
}

// A row is the stored form of a part.
type row struct {
	Pods    []types.UID `json:"pods"`
	Devices []Device    `json:"devices,omitempty"`
}

// New reads nothing.
func New(c Config) *Manager {
	if c.PodChanged == nil {
		c.PodChanged = func(types.UID) {}
	}
	if c.Counted == nil {
		c.Counted = noCounter{}
	}
	m := &Manager{c: c, claims: map[types.UID]*claim{}, drivers: map[string][]*driver{}, waiting: map[string]map[types.UID]bool{}, reachable: map[string]bool{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Close ends what listens to drivers.
func (m *Manager) Close() error {
	m.cancel()
	m.group.Wait()
	return nil
}

// Load takes over the claims of the last run. It is called before any other method.
func (m *Manager) Load(ctx context.Context) error {
	rows, err := m.c.Store.Claims(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range rows {
		var s row
		if err := json.Unmarshal(r.State, &s); err != nil { // the driver has it still
			m.c.Log.Error("what is known of a resource claim cannot be read: it is prepared anew", "claim", r.Namespace+"/"+r.Name, "driver", r.Driver, "error", err)
		}
		c := m.claims[r.UID]
		if c == nil {
			c = newClaim(r.UID, r.Namespace, r.Name)
			m.claims[r.UID] = c
		}
		for _, uid := range s.Pods {
			c.pods[uid] = true
		}
		c.parts[r.Driver] = &part{devices: s.Devices}
	}
	return nil
}

func newClaim(uid types.UID, namespace, name string) *claim {
	return &claim{uid: uid, namespace: namespace, name: name, busy: make(chan struct{}, 1), pods: map[types.UID]bool{}, parts: map[string]*part{}}
}

// InUse counts the claims that are prepared, or may be: by driver, and all of them.
func (m *Manager) InUse() (drivers map[string]int, all int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	drivers = map[string]int{}
	for _, c := range m.claims {
		for name := range c.parts {
			drivers[name]++
		}
	}
	return drivers, len(m.claims)
}

// rows are a claim's as they are now. The caller holds mu.
func (c *claim) rows() (out []store.Claim) {
	pods := slices.Sorted(maps.Keys(c.pods))
	for name, p := range c.parts {
		state, _ := json.Marshal(row{pods, p.devices}) // texts only
		out = append(out, store.Claim{UID: c.uid, Driver: name, Namespace: c.namespace, Name: c.name, State: state})
	}
	return out
}

// lock has nobody else prepare or take back the claims; they are sorted, so that two never
// wait for each other.
func lock(ctx context.Context, claims []*claim) (unlock func(), err error) {
	var held []*claim
	unlock = func() {
		for _, c := range held {
			<-c.busy
		}
	}
	for _, c := range claims {
		select {
		case c.busy <- struct{}{}:
			held = append(held, c)
		case <-ctx.Done():
			unlock()
			return nil, fmt.Errorf("ResourceClaim %s: %w", c.name, ctx.Err())
		}
	}
	return unlock, nil
}

// find gives the claim of that name of which a pod is known to be a user. The caller holds
// mu.
func (m *Manager) find(pod *v1.Pod, name string) *claim {
	for _, c := range m.claims {
		if c.name == name && c.namespace == pod.Namespace && c.pods[pod.UID] {
			return c
		}
	}
	return nil
}
