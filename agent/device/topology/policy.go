package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/islet-edge/islet/internal/sorting"
)

// The names of policies and scopes in the configuration.
const (
	None       = "none"
	BestEffort = "best-effort"
	Restricted = "restricted"
	SingleNode = "single-numa-node"

	ContainerScope = "container"
	PodScope       = "pod"
)

// defaultMaxNodes is the maximum number of NUMA nodes if the option max-allowable-numa-nodes is not set. The time for
// a decision grows exponentially with the number of nodes.
const defaultMaxNodes = 8

// Options contains the options of the topology manager.
type Options struct {
	PreferClosest bool // prefer-closest-numa-nodes
	MaxNodes      int  // max-allowable-numa-nodes
}

// ParseOptions parses topologyManagerPolicyOptions. The error messages are the same as in a kubelet.
func ParseOptions(given map[string]string) (o Options, err error) {
	o.MaxNodes = defaultMaxNodes
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch value := given[name]; name {
		case "prefer-closest-numa-nodes":
			if o.PreferClosest, err = strconv.ParseBool(value); err != nil {
				return o, fmt.Errorf("bad value for option %q: %w", name, err)
			}
		case "max-allowable-numa-nodes":
			if o.MaxNodes, err = strconv.Atoi(value); err != nil {
				return o, fmt.Errorf("unable to convert policy option to integer %q: %w", name, err)
			}
			if o.MaxNodes < defaultMaxNodes {
				return o, fmt.Errorf("the minimum value of %q should not be less than %v", name, defaultMaxNodes)
			}
		default:
			return o, fmt.Errorf("unknown Topology Manager Policy option: %q", name)
		}
	}
	return o, nil
}

// A Policy selects the NUMA nodes for a container or pod.
type Policy struct {
	name     string
	options  Options
	nodes    []Node
	allNodes Mask
}

// NewPolicy returns the policy with the given name. It fails if the policy does not support the machine.
func NewPolicy(name string, o Options, m Machine) (*Policy, error) {
	if name == None {
		return &Policy{name: name}, nil
	}
	if len(m.Nodes) > o.MaxNodes {
		return nil, fmt.Errorf("unsupported on machines with more than %v NUMA Nodes", o.MaxNodes)
	}
	for _, n := range m.Nodes {
		if o.PreferClosest && n.Distances == nil {
			return nil, fmt.Errorf("prefer-closest-numa-nodes: the kernel does not report the distances of NUMA node %d", n.ID)
		}
	}
	return &Policy{name: name, options: o, nodes: m.Nodes, allNodes: MaskOf(m.IDs()...)}, nil
}

// Name returns the policy's name.
func (p *Policy) Name() string { return p.name }

// Merge returns the best hint for all resources, and whether the policy admits the pod with this hint.
func (p *Policy) Merge(list []Hints) (Hint, bool) {
	if p.name == None {
		return Hint{}, true
	}
	rows := flattenHints(list)
	if p.name == SingleNode {
		for i, row := range rows {
			rows[i] = slices.DeleteFunc(slices.Clone(row), func(h Hint) bool { return !h.Preferred || h.Nodes.Count() > 1 })
		}
	}
	best := p.bestMerged(rows)
	if p.name == SingleNode && best.Nodes == p.allNodes { // no resource has a preference
		best.Nodes = 0
	}
	return best, p.name == BestEffort || best.Preferred
}

// flattenHints returns the lists of hints of all resources. It replaces a nil list with a hint for any node, and an empty
// list with a hint that is not preferred.
func flattenHints(list []Hints) (rows [][]Hint) {
	for _, hints := range list {
		if len(hints) == 0 {
			rows = append(rows, []Hint{{Preferred: true}})
		}
		for _, name := range slices.Sorted(maps.Keys(hints)) {
			switch row := hints[name]; {
			case row == nil:
				rows = append(rows, []Hint{{Preferred: true}})
			case len(row) == 0:
				rows = append(rows, []Hint{{}})
			default:
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// bestMerged returns the best combination of one hint for each resource. It does not store every combination. For the
// resources considered so far, it stores only the different results (nodes and preference).
func (p *Policy) bestMerged(rows [][]Hint) Hint {
	type merged struct {
		nodes     Mask
		first     Mask // nodes of the first hint that has nodes; zero until there is one
		preferred bool
	}
	states := map[merged]bool{{nodes: p.allNodes, preferred: true}: true}
	minNodes := 0 // the maximum of the resources' minimum numbers of nodes
	for _, row := range rows {
		if n := narrowestMask(row); n != 0 {
			minNodes = max(minNodes, n.Count())
		}
		next := map[merged]bool{}
		for s := range states {
			for _, h := range row {
				t := s
				t.preferred = s.preferred && h.Preferred
				if h.Nodes != 0 {
					if t.first == 0 {
						t.first = h.Nodes
					}
					t.preferred = t.preferred && h.Nodes == t.first
					t.nodes &= h.Nodes
				}
				next[t] = true
			}
		}
		states = next
	}
	var candidates []Hint
	for s := range states {
		if s.nodes != 0 {
			candidates = append(candidates, Hint{s.nodes, s.preferred})
		}
	}
	if len(candidates) == 0 {
		return Hint{p.allNodes, false}
	}
	sorting.By(candidates, func(a, b Hint) int { // makes the result independent of the map's order
		if a.Nodes != b.Nodes {
			if a.Nodes < b.Nodes {
				return -1
			}
			return 1
		}
		if a.Preferred == b.Preferred {
			return 0
		} else if a.Preferred {
			return -1
		}
		return 1
	})
	best := candidates[0]
	for _, c := range candidates[1:] {
		if p.isBetter(c, best, minNodes) {
			best = c
		}
	}
	return best
}

func narrowestMask(row []Hint) (out Mask) {
	for _, h := range row {
		if h.Nodes != 0 && (out == 0 || h.Nodes.IsNarrower(out)) {
			out = h.Nodes
		}
	}
	return out
}

// isBetter reports whether a is better than b. A preferred hint is better than a hint that is not preferred. If both
// are preferred, or have the same number of nodes, isCloser decides. Otherwise a hint with exactly minNodes nodes is
// better. If neither has minNodes nodes, the hint with fewer nodes is better. But if both have fewer than minNodes
// nodes, the hint with more nodes is better.
func (p *Policy) isBetter(a, b Hint, minNodes int) bool {
	if a.Preferred != b.Preferred {
		return a.Preferred
	}
	x, y := a.Nodes.Count(), b.Nodes.Count()
	switch {
	case a.Preferred || x == y:
		return p.isCloser(a.Nodes, b.Nodes)
	case x == minNodes || y == minNodes:
		return x == minNodes
	case x > minNodes || y > minNodes:
		return x < y
	}
	return x > y
}

// isCloser reports whether the set a has fewer nodes than the set b, or nodes that are closer together. If both sets
// have the same number of nodes and prefer-closest-numa-nodes is set, it compares the distances between the nodes. If
// the sets are still equal, it compares their values.
func (p *Policy) isCloser(a, b Mask) bool {
	if p.options.PreferClosest && p.name != SingleNode && a.Count() == b.Count() {
		if x, y := p.meanDistance(a), p.meanDistance(b); x != y {
			return x < y
		}
	}
	return a.IsNarrower(b)
}

// meanDistance returns the mean distance between the nodes of a set.
func (p *Policy) meanDistance(m Mask) float64 {
	var sum, n float64
	for _, from := range p.nodes {
		for i, to := range p.nodes {
			if m.Has(from.ID) && m.Has(to.ID) {
				sum, n = sum+float64(from.Distances[i]), n+1
			}
		}
	}
	return sum / n
}
