package devicemanager

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Device is an item of a resource, which can be allocated to a container.
type Device struct {
	ID      string // unique within the resource, and stable across reboots
	Healthy bool   // can be allocated
	Message string // why the device is not healthy; may be empty
	NUMA    []int64
}

// approximateSize returns the approximate memory of a listed device in bytes.
func (d *Device) approximateSize() int { return 128 + len(d.ID) + len(d.Message) + 8*len(d.NUMA) }

// listedWeight returns the total weight of the devices of all resources except the given resource. The caller holds mu.
func (m *Manager) listedWeight(but *resourceState) (sum int) {
	for _, r := range m.resources {
		if r != but && len(r.devices) > 0 {
			sum += r.weight
		}
	}
	return sum
}

// makeRoom makes room within maxListed for a resource's new list. It first drops the lists of disconnected providers. If
// that is not enough, it drops the largest list, but only if that is larger than the new one. So a resource with a long
// list cannot displace the lists of the others. It returns the provider that it disconnected, or nil, and the pods whose
// devices are no longer listed. The caller holds mu.
func (m *Manager) makeRoom(r *resourceState, weight int) (victim Yielder, touched []types.UID, fits bool) {
	drop := func(name string, o *resourceState) {
		touched = append(touched, m.affectedPods(name, o.devices, nil)...)
		o.devices = nil
	}
	sum := m.listedWeight(r) + weight
	for name, o := range m.resources {
		if sum > maxListed && o != r && o.link == nil && len(o.devices) > 0 {
			sum -= o.weight
			drop(name, o)
		}
	}
	if sum <= maxListed {
		return nil, touched, true
	}
	var largest *resourceState
	for _, o := range m.resources {
		if o == r || o.link == nil || len(o.devices) == 0 || o.weight <= weight || largest != nil && o.weight <= largest.weight {
			continue
		}
		if y, can := o.link.provider.(Yielder); can {
			victim, largest = y, o
		}
	}
	if largest == nil {
		return nil, touched, false
	}
	name := largest.link.resource
	drop(name, largest)
	largest.link, largest.goneSince = nil, time.Now()
	m.expireLater(name)
	return victim, touched, true
}

// A Request names the devices of one resource that are allocated to a container.
type Request struct {
	Pod       *v1.Pod
	Container *v1.Container
	IDs       []string // sorted
}

// A Choice is the input of a Preferrer.
type Choice struct {
	Pod       *v1.Pod
	Container *v1.Container
	Available []string // sorted; includes Must
	Must      []string
	Count     int // includes Must
}

// An Allocation contains the changes that a provider makes to a container's configuration. It is stored as JSON, so
// its fields must keep their names.
type Allocation struct {
	Env         map[string]string `json:"env,omitempty"`
	Mounts      []Mount           `json:"mounts,omitempty"`
	Nodes       []Node            `json:"nodes,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"` // annotations of the container, which the runtime reads
	CDI         []string          `json:"cdi,omitempty"`         // fully qualified: vendor.com/class=name
	Groups      []int64           `json:"groups,omitempty"`      // supplementary groups of the container's first process
}

// A Mount describes a bind mount from a path on the host to a path in the container.
type Mount struct {
	Host      string `json:"host"`
	Container string `json:"container"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

// A Node describes a device node of the host, and its path in the container.
type Node struct {
	Host        string `json:"host"`
	Container   string `json:"container"`
	Permissions string `json:"permissions"` // a combination of r, w and m
}

// A Provider provides the devices of one resource. Its methods may block until their context ends, because only the
// pod of the request waits for them. They must be safe for concurrent use.
type Provider interface {
	// Allocate is called once for each container that gets devices, before the allocation is
	// stored. There is no call for releasing devices.
	Allocate(context.Context, Request) (Allocation, error)
}

// A Starter is a Provider with a hook for starts: the Manager calls Start before each start of a container with devices of
// the Provider's resource.
type Starter interface {
	// Start may return a new allocation for the same devices, for example with another path. It returns nil if
	// nothing changes. An error prevents the start, which the agent retries later.
	Start(context.Context, Request) (*Allocation, error)
}

// A Yielder is a Provider whose list of devices may be dropped to make room for other lists. When Yield is called,
// the Provider's Link is already closed and its devices are no longer listed.
type Yielder interface {
	Yield(why error)
}

// A Preferrer is a Provider that chooses among devices. The Manager ignores returned IDs that are not available.
type Preferrer interface {
	PreferredDevices(context.Context, Choice) ([]string, error)
}
