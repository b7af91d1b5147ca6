package pinning

import "k8s.io/apimachinery/pkg/types"

// A Holding contains the exclusive CPUs and the memory that are assigned to a container.
type Holding struct {
	CPUs   []int
	Memory []Block
}

// A Block is memory of one kind on a set of NUMA nodes.
type Block struct {
	Kind  string
	Nodes []int
	Size  uint64 // bytes
}

// Holding returns the exclusive CPUs and the memory that are assigned to a container.
func (m *Manager) Holding(uid types.UID, container string) (h Holding) {
	if m == nil {
		return h
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.CPUs = m.cpuSets[uid][container].List()
	blocks, _ := m.nodes.Blocks(uid, container)
	for _, b := range blocks {
		h.Memory = append(h.Memory, Block{string(b.Kind), b.Nodes.IDs(), b.Size})
	}
	return h
}

// Allocatable returns all CPUs and memory that can be assigned, whether or not they are assigned now.
func (m *Manager) Allocatable() (h Holding) {
	if m == nil {
		return h
	}
	if m.cpus != nil {
		h.CPUs = m.cpus.Allocatable().List()
	}
	if m.memory != nil {
		for _, b := range m.memory.Allocatable() {
			h.Memory = append(h.Memory, Block{string(b.Kind), b.Nodes.IDs(), b.Size})
		}
	}
	return h
}
