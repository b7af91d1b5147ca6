package devicemanager

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/sorting"
)

// A Resource lists the devices of an extended resource.
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
		all := slices.Collect(maps.Values(r.devices))
		sorting.By(all, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
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
