package topology

import (
	"math/bits"
)

// A Mask is a set of NUMA nodes. Zero means no preference.
type Mask uint64

// MaskOf returns the set of NUMA nodes with the given IDs.
func MaskOf(ids ...int) (m Mask) {
	for _, id := range ids {
		if id >= 0 && id < maxNode {
			m |= 1 << id
		}
	}
	return m
}

// Count returns the number of nodes in the set.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Has reports whether a node is in the set.
func (m Mask) Has(id int) bool { return id >= 0 && id < maxNode && m&(1<<id) != 0 }

// IDs returns the IDs of the nodes, sorted.
func (m Mask) IDs() (out []int) {
	for rest := uint64(m); rest != 0; rest &= rest - 1 {
		out = append(out, bits.TrailingZeros64(rest))
	}
	return out
}

// IsNarrower reports whether m has fewer nodes than o, or the same number and a smaller value.
func (m Mask) IsNarrower(o Mask) bool {
	if m.Count() == o.Count() {
		return m < o
	}
	return m.Count() < o.Count()
}

// EachMask calls the function visit for each non-empty set of nodes, the smaller sets first.
func EachMask(ids []int, visit func(Mask)) {
	var walk func(rest []int, m Mask, missing int)
	walk = func(rest []int, m Mask, missing int) {
		if missing == 0 {
			visit(m)
			return
		}
		for i := 0; i+missing <= len(rest); i++ {
			walk(rest[i+1:], m|MaskOf(rest[i]), missing-1)
		}
	}
	for size := 1; size <= len(ids); size++ {
		walk(ids, 0, size)
	}
}

// A Hint is a set of nodes that can provide a resource. If Nodes is zero, any node can.
type Hint struct {
	Nodes     Mask
	Preferred bool // no smaller set can provide the resource
}

// Hints contains the hints of each resource. A nil list means no preference. An empty list means that no set of nodes
// can provide the resource.
type Hints map[string][]Hint
