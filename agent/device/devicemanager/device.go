package devicemanager

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Device is one of those of a resource.
type Device struct {
	ID      string // its name within the resource: the same after a reboot
	Healthy bool   // it may be given to a container
	Message string // why it is not healthy; empty: that is not known
	NUMA    []int64
}

// weight is about how many bytes of memory a device in a list takes.
func (d *Device) weight() int { return 128 + len(d.ID) + len(d.Message) + 8*len(d.NUMA) }

// listedWeight is the weight of the devices of all resources but one. The caller holds mu.
func (m *Manager) listedWeight(but *resourceState) (sum int) {
	for _, r := range m.resources {
		if r != but && len(r.devices) > 0 {
			sum += r.weight
		}
	}
	return sum
}

// makeRoom makes room for a list of a resource. Lists whose provider is gone give way first, then the
// largest, if it is larger than this one: who lists most cannot keep others out. It returns the
// provider to tell, if any, and the pods whose devices are no longer listed. The caller holds mu.
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

// A Request is about devices of one resource for one container.
type Request struct {
	Pod       *v1.Pod
	Container *v1.Container
	IDs       []string // sorted
}

// A Choice is what a Preferrer chooses from.
type Choice struct {
	Pod       *v1.Pod
	Container *v1.Container
	Available []string // sorted; with those of Must
	Must      []string
	Count     int // with those of Must
}

// An Allocation is what a container gets with its devices. It is stored as JSON, so its
// fields keep their names.
type Allocation struct {
	Env         map[string]string `json:"env,omitempty"`
	Mounts      []Mount           `json:"mounts,omitempty"`
	Nodes       []Node            `json:"nodes,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"` // of the container, for its runtime
	CDI         []string          `json:"cdi,omitempty"`         // fully qualified: vendor.com/class=name
	Groups      []int64           `json:"groups,omitempty"`      // supplementary ones of its first process
}

// A Mount is a bind mount.
type Mount struct {
	Host      string `json:"host"`
	Container string `json:"container"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

// A Node is a device node.
type Node struct {
	Host        string `json:"host"`
	Container   string `json:"container"`
	Permissions string `json:"permissions"` // of r, w and m
}

// A Provider has the devices of one resource. Its methods may take as long as their context
// lets them: nobody but the pod in question waits. They are called from any goroutine.
type Provider interface {
	// Allocate is called once for each container that gets devices, before what it gives is
	// stored. There is no call that gives devices back.
	Allocate(context.Context, Request) (Allocation, error)
}

// A Starter is a Provider that wants to know of each start of a container with devices of
// its resource.
type Starter interface {
	// Start may say that the container gets something else than before, such as another path
	// of the same device; nil: it gets what it got. An error keeps it from starting for now.
	Start(context.Context, Request) (*Allocation, error)
}

// A Yielder is a Provider that may have to give way to others. It has no devices from then on, and
// its Link is closed.
type Yielder interface {
	Yield(why error)
}

// A Preferrer is a Provider that chooses among devices. What it names that is not available
// does not count.
type Preferrer interface {
	Preferred(context.Context, Choice) ([]string, error)
}
