package memorymanager

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/topology"
)

// A Block is memory of one kind that is assigned to a container.
type Block struct {
	Kind  v1.ResourceName `json:"kind"` // memory, or huge pages of one size
	Nodes topology.Mask   `json:"nodes"`
	Size  uint64          `json:"size"` // bytes
	// Held is the part of Size that the container does not reuse from an init container of its pod. An init container
	// ends before the next container starts.
	Held uint64 `json:"held"`
}

// A row contains the blocks of one container.
type row struct {
	uid       types.UID
	container string
	init      bool // an init container ends before the next container starts
	blocks    []Block
}

// Assignments contains the memory of containers, in the order of the assignments.
type Assignments struct{ rows []row }

// Clone returns a copy of the list.
func (g *Assignments) Clone() *Assignments { return &Assignments{slices.Clone(g.rows)} }

// Put adds the memory of a container.
func (g *Assignments) Put(uid types.UID, container string, init bool, blocks []Block) {
	g.rows = append(g.rows, row{uid, container, init, blocks})
}

// Blocks returns the memory of a container. It returns false if the container has none.
func (g *Assignments) Blocks(uid types.UID, container string) ([]Block, bool) {
	for _, r := range g.rows {
		if r.uid == uid && r.container == container {
			return r.blocks, true
		}
	}
	return nil, false
}

// Remove removes the memory of a pod. It reports whether the pod had memory.
func (g *Assignments) Remove(uid types.UID) bool {
	before := len(g.rows)
	g.rows = slices.DeleteFunc(slices.Clone(g.rows), func(r row) bool { return r.uid == uid })
	return len(g.rows) != before
}

// reusableBytes returns the bytes that a container can reuse from init containers of its pod on exactly these nodes.
func (g *Assignments) reusableBytes(uid types.UID, kind v1.ResourceName, at topology.Mask) (n uint64) {
	for _, r := range g.rows {
		for _, b := range r.blocks {
			if r.uid != uid || b.Kind != kind || b.Nodes != at {
				continue
			}
			if r.init {
				n = max(n, b.Size)
			} else {
				n -= min(n, b.Size)
			}
		}
	}
	return n
}
