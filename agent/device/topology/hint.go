package topology

import (
	"math/bits"
)

// A Mask is a set of NUMA nodes; zero: there is none, or nobody cares.
type Mask uint64

// MaskOf are the nodes with these IDs.
func MaskOf(ids ...int) (m Mask) {
	for _, id := range ids {
		if id >= 0 && id < maxNode {
			m |= 1 << id
		}
	}
	return m
}

// Count is the number of its nodes.
func (m Mask) Count() int { return bits.OnesCount64(uint64(m)) }

// Has reports whether a node is among them.
func (m Mask) Has(id int) bool { return id >= 0 && id < maxNode && m&(1<<id) != 0 }

// IDs are its nodes in order.
func (m Mask) IDs() (out []int) {
	for rest := uint64(m); rest != 0; rest &= rest - 1 {
		out = append(out, bits.TrailingZeros64(rest))
	}
	return out
}

// Narrower reports whether it has fewer nodes, or as many with lesser numbers.
func (m Mask) Narrower(o Mask) bool {
	if m.Count() == o.Count() {
		return m < o
	}
	return m.Count() < o.Count()
}

// EachMask visits all sets of nodes, the small ones first.
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

// A Hint is a set of nodes from which a resource could be given; Nodes zero: any.
type Hint struct {
	Nodes     Mask
	Preferred bool // no smaller set would do
}

// Hints are those of each resource: nil, it does not matter; empty, there are none.
type Hints map[string][]Hint
