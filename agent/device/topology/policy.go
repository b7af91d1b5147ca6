package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Policies and scopes, as the configuration has them.
const (
	None       = "none"
	BestEffort = "best-effort"
	Restricted = "restricted"
	SingleNode = "single-numa-node"

	ContainerScope = "container"
	PodScope       = "pod"
)

// defaultMaxNodes is how many NUMA nodes a policy takes, unless an option says so: the time that
// a decision takes grows exponentially with them.
const defaultMaxNodes = 8

// Options of the topology manager.
type Options struct {
	Closest  bool // prefer-closest-numa-nodes
	MaxNodes int  // max-allowable-numa-nodes
}

// ParseOptions reads topologyManagerPolicyOptions. Errors are in a kubelet's words.
func ParseOptions(given map[string]string) (o Options, err error) {
	o.MaxNodes = defaultMaxNodes
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch value := given[name]; name {
		case "prefer-closest-numa-nodes":
			if o.Closest, err = strconv.ParseBool(value); err != nil {
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

// A Policy decides for which nodes a container or pod gets what it asks for.
type Policy struct {
	name    string
	options Options
	nodes   []Node
	all     Mask
}

// NewPolicy checks that the machine is one that the policy can serve.
func NewPolicy(name string, o Options, m Machine) (*Policy, error) {
	if name == None {
		return &Policy{name: name}, nil
	}
	if len(m.Nodes) > o.MaxNodes {
		return nil, fmt.Errorf("unsupported on machines with more than %v NUMA Nodes", o.MaxNodes)
	}
	for _, n := range m.Nodes {
		if o.Closest && n.Distances == nil {
			return nil, fmt.Errorf("prefer-closest-numa-nodes: the kernel does not say how far NUMA node %d is from the others", n.ID)
		}
	}
	return &Policy{name: name, options: o, nodes: m.Nodes, all: MaskOf(m.IDs()...)}, nil
}

// Name is the policy's.
func (p *Policy) Name() string { return p.name }

// Merge gives what suits all resources best, and whether that will do.
func (p *Policy) Merge(list []Hints) (Hint, bool) {
	if p.name == None {
		return Hint{}, true
	}
	rows := flatten(list)
	if p.name == SingleNode {
		for i, row := range rows {
			rows[i] = slices.DeleteFunc(slices.Clone(row), func(h Hint) bool { return !h.Preferred || h.Nodes.Count() > 1 })
		}
	}
	best := p.best(rows)
	if p.name == SingleNode && best.Nodes == p.all { // nobody cares
		best.Nodes = 0
	}
	return best, p.name == BestEffort || best.Preferred
}

// flatten makes one row of each resource.
func flatten(list []Hints) (rows [][]Hint) {
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

// best tries each combination of one hint per resource. Those with the same nodes and
// preference so far are one: it does not matter how they came about.
func (p *Policy) best(rows [][]Hint) Hint {
	type merged struct {
		nodes     Mask
		first     Mask // of the hints that care; zero: none does yet
		preferred bool
	}
	states := map[merged]bool{{nodes: p.all, preferred: true}: true}
	minNodes := 0 // the most nodes that any resource needs at least
	for _, row := range rows {
		if n := narrowest(row); n != 0 {
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
		return Hint{p.all, false}
	}
	slices.SortFunc(candidates, func(a, b Hint) int { // so that the outcome does not depend on a map
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
		if p.preferred(c, best, minNodes) {
			best = c
		}
	}
	return best
}

func narrowest(row []Hint) (out Mask) {
	for _, h := range row {
		if h.Nodes != 0 && (out == 0 || h.Nodes.Narrower(out)) {
			out = h.Nodes
		}
	}
	return out
}

// preferred reports whether a is to be taken rather than b. Of those that nobody prefers the
// one is best that has as many nodes as the resource that needs most at least; of those
// with fewer the one with more, else the one with fewer.
func (p *Policy) preferred(a, b Hint, minNodes int) bool {
	if a.Preferred != b.Preferred {
		return a.Preferred
	}
	x, y := a.Nodes.Count(), b.Nodes.Count()
	switch {
	case a.Preferred || x == y:
		return p.closer(a.Nodes, b.Nodes)
	case x == minNodes || y == minNodes:
		return x == minNodes
	case x > minNodes || y > minNodes:
		return x < y
	}
	return x > y
}

// closer: fewer nodes, or as many that are nearer to each other, or have lesser numbers.
func (p *Policy) closer(a, b Mask) bool {
	if p.options.Closest && p.name != SingleNode && a.Count() == b.Count() {
		if x, y := p.distance(a), p.distance(b); x != y {
			return x < y
		}
	}
	return a.Narrower(b)
}

// distance is the mean between the nodes of a set.
func (p *Policy) distance(m Mask) float64 {
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
