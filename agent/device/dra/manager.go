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

// A Store stores claims. *store.Store implements it.
type Store interface {
	Claims(ctx context.Context) ([]store.Claim, error)
	PutClaims(ctx context.Context, claims []store.Claim) error
	RemoveClaims(ctx context.Context, claims []store.Claim) error
}

// Objects reads the ResourceClaims that a pod names. *object.Cache implements it.
type Objects interface {
	ResourceClaim(pod *v1.Pod, name string) (*resourcev1.ResourceClaim, error)
	// Renew fetches the objects to which the pod refers from the API server, even if they are cached.
	Renew(ctx context.Context, pod *v1.Pod) error
}

// Config is the input of New.
type Config struct {
	Store   Store
	Objects Objects // nil on a node without an API server, which has no claims
	// PodChanged is called when the health of a pod's device has changed, when a driver for which the pod waits has
	// registered, and when Sweep finds claims of a pod that is gone. It must not block. It may be nil.
	PodChanged func(types.UID)
	// Slices is notified when a driver becomes reachable or unreachable. *resourceslice.Sweeper implements it. It may
	// be nil.
	Slices  Slices
	Counter Counter // may be nil
	Log     *slog.Logger
}

// Slices deletes the ResourceSlices of drivers that stay unreachable. Its methods must not block.
type Slices interface {
	DriverConnected(driver string)
	DriverGone(driver string)
}

// A Counter observes the operations and calls for which a kubelet has metrics of dynamic resource allocation.
type Counter interface {
	// DRAOperation observes an operation on all claims of a pod. Its name is PrepareResources or UnprepareResources.
	DRAOperation(name string, failed bool, took time.Duration)
	// DRACall observes one call to a driver. The code is the name of the gRPC status code.
	DRACall(driver, method, code string, took time.Duration)
}

type noCounter struct{}

func (noCounter) DRAOperation(string, bool, time.Duration)      {}
func (noCounter) DRACall(string, string, string, time.Duration) {}

// A Manager prepares claims. It implements a hook of the pod lifecycle, and handles the drivers that package plugins
// finds.
type Manager struct {
	c      Config
	ctx    context.Context // parent of the drivers' contexts
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu        sync.Mutex // not locked during calls to a driver or the store
	claims    map[types.UID]*claim
	drivers   map[string][]*driver          // by name; the latest instance is last
	waiting   map[string]map[types.UID]bool // UIDs of the pods that wait for a driver, by driver
	reachable map[string]bool               // the value that was last reported to Slices, by driver
}

// A claim is a ResourceClaim that is prepared or may be prepared.
type claim struct {
	uid             types.UID
	namespace, name string
	busy            chan struct{} // a lock of capacity 1, which is locked while the claim is prepared or unprepared

	// Manager.mu guards these fields.
	pods  map[types.UID]bool
	parts map[string]*part // by driver
}

// A part contains the devices of a claim that belong to one driver.
type part struct {
	devices  []Device
	prepared bool // prepared since this agent started
}

// A Device is the driver's response for a device that it has prepared. It is stored as JSON, so its fields must keep
// their names.
type Device struct {
	Requests []string `json:"requests,omitempty"` // requests of the claim; empty means all requests
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

// New returns a Manager. It does no I/O.
func New(c Config) *Manager {
	if c.PodChanged == nil {
		c.PodChanged = func(types.UID) {}
	}
	if c.Counter == nil {
		c.Counter = noCounter{}
	}
	m := &Manager{
		c: c, claims: map[types.UID]*claim{}, drivers: map[string][]*driver{},
		waiting: map[string]map[types.UID]bool{}, reachable: map[string]bool{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Close closes the connections to drivers.
func (m *Manager) Close() error {
	m.cancel()
	m.group.Wait()
	return nil
}

// Load loads the stored claims. It is called before any other method.
func (m *Manager) Load(ctx context.Context) error {
	rows, err := m.c.Store.Claims(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range rows {
		var s row
		if err := json.Unmarshal(r.State, &s); err != nil { // the driver may have prepared the claim nevertheless
			m.c.Log.Error("cannot decode the stored state of a resource claim: the driver prepares the claim again",
				"claim", r.Namespace+"/"+r.Name, "driver", r.Driver, "error", err)
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
	return &claim{
		uid: uid, namespace: namespace, name: name, busy: make(chan struct{}, 1),
		pods: map[types.UID]bool{}, parts: map[string]*part{},
	}
}

// InUse returns the number of claims that are prepared or may be prepared, by driver and in total.
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

// toRows returns the rows to store for a claim. The caller holds mu.
func (c *claim) toRows() []store.Claim { return c.rowsWithout("") }

// rowsWithout returns the rows to store for a claim that the given pod no longer uses. The caller holds mu.
func (c *claim) rowsWithout(uid types.UID) (out []store.Claim) {
	pods := slices.DeleteFunc(slices.Sorted(maps.Keys(c.pods)), func(u types.UID) bool { return u == uid })
	for name, p := range c.parts {
		state, _ := json.Marshal(row{pods, p.devices}) // cannot fail, because the row contains only strings
		out = append(out, store.Claim{UID: c.uid, Driver: name, Namespace: c.namespace, Name: c.name, State: state})
	}
	return out
}

// lockClaims locks claims, so that they are not prepared or unprepared concurrently. The claims must be sorted, so that two
// callers cannot deadlock.
func lockClaims(ctx context.Context, claims []*claim) (unlock func(), err error) {
	for i, c := range claims {
		select {
		case c.busy <- struct{}{}:
		case <-ctx.Done():
			unlockClaims(claims[:i])
			return nil, fmt.Errorf("ResourceClaim %s: %w", c.name, ctx.Err())
		}
	}
	return func() { unlockClaims(claims) }, nil
}

func unlockClaims(claims []*claim) {
	for _, c := range claims {
		<-c.busy
	}
}

// findClaim returns the claim with the given name that the pod uses, or nil. The caller holds mu.
func (m *Manager) findClaim(pod *v1.Pod, name string) *claim {
	for _, c := range m.claims {
		if c.name == name && c.namespace == pod.Namespace && c.pods[pod.UID] {
			return c
		}
	}
	return nil
}
