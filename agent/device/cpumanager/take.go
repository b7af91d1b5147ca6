package cpumanager

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"k8s.io/utils/cpuset"

	"github.com/islet-edge/islet/agent/device/topology"
)

// A selection is the state of selecting CPUs for one request.
type selection struct {
	all     topology.CPUs // all CPUs of the machine
	free    topology.CPUs // still selectable
	taken   cpuset.CPUSet // selected
	missing int           // number of CPUs that are still to be selected
	// nodesFirst is set if no socket has more than one NUMA node. A node is then the larger unit.
	nodesFirst  bool
	acrossCores bool // distribute the CPUs over all cores
}

func newSelection(all topology.CPUs, from cpuset.CPUSet, count int, spread bool) *selection {
	return &selection{
		all: all, free: all.Intersect(from), taken: cpuset.New(), missing: count, acrossCores: spread,
		nodesFirst: all.Sockets().Size() >= all.Nodes().Size(),
	}
}

func (p *selection) takeSet(set cpuset.CPUSet) {
	p.taken = p.taken.Union(set)
	p.free = p.free.Intersect(p.free.IDs().Difference(p.taken))
	p.missing -= set.Size()
}

// sortByFree sorts units by the number of their free CPUs, in ascending order, so that unused units stay whole.
func sortByFree(units cpuset.CPUSet, free func(int) cpuset.CPUSet) []int {
	ids := units.List()
	size := make(map[int]int, len(ids))
	for _, id := range ids {
		size[id] = free(id).Size()
	}
	sort.SliceStable(ids, func(i, j int) bool { return size[ids[i]] < size[ids[j]] }) // List returns them in ascending order
	return ids
}

func (p *selection) sortedNodes() (out []int) {
	if p.nodesFirst {
		return sortByFree(p.free.Nodes(), p.free.InNode)
	}
	for _, s := range p.sortedSockets() {
		out = append(out, sortByFree(p.free.NodesOfSocket(s), p.free.InNode)...)
	}
	return out
}

func (p *selection) sortedSockets() (out []int) {
	if !p.nodesFirst {
		return sortByFree(p.free.Sockets(), p.free.InSocket)
	}
	for _, n := range p.sortedNodes() {
		out = append(out, sortByFree(p.free.SocketsOfNode(n), p.free.InSocket)...)
	}
	return out
}

func (p *selection) sortedCores() (out []int) {
	if p.nodesFirst {
		for _, s := range p.sortedSockets() {
			out = append(out, sortByFree(p.free.CoresOfSocket(s), p.free.InCore)...)
		}
		return out
	}
	for _, n := range p.sortedNodes() {
		out = append(out, sortByFree(p.free.CoresOfNode(n), p.free.InCore)...)
	}
	return out
}

func (p *selection) sortedCaches() (out []int) {
	for _, n := range p.sortedNodes() {
		out = append(out, sortByFree(p.free.CachesOfNode(n), p.free.InCache)...)
	}
	return out
}

// takeWhole selects units whose CPUs are all free. It skips a unit that has more CPUs than are still missing.
func (p *selection) takeWhole(units []int, free, all func(int) cpuset.CPUSet) {
	for _, id := range slices.DeleteFunc(units, func(id int) bool { return free(id).Size() != all(id).Size() }) {
		if set := all(id); set.Size() <= p.missing && set.IsSubsetOf(p.free.IDs()) {
			p.takeSet(set)
		}
	}
}

func (p *selection) takeNodes()   { p.takeWhole(p.sortedNodes(), p.free.InNode, p.all.InNode) }
func (p *selection) takeSockets() { p.takeWhole(p.sortedSockets(), p.free.InSocket, p.all.InSocket) }
func (p *selection) takeCaches()  { p.takeWhole(p.sortedCaches(), p.free.InCache, p.all.InCache) }
func (p *selection) takeCores()   { p.takeWhole(p.sortedCores(), p.free.InCore, p.all.InCore) }

// takeCached selects whole caches. It selects the remaining CPUs from one cache that has enough free CPUs, if there is
// such a cache.
func (p *selection) takeCached() {
	for _, id := range p.sortedCaches() {
		if p.missing >= p.all.PerCache() {
			p.takeCaches()
		}
		if p.missing < 1 {
			return
		}
		p.takePart(id)
		if p.missing < 1 {
			return
		}
	}
}

// takePart selects the missing CPUs from the cores of one cache. If the cache has too few, it selects none.
func (p *selection) takePart(cache int) {
	per := p.all.PerCore()
	want := (p.missing + per - 1) / per
	cores := p.free.CoresOfCache(cache).List()
	cores = cores[:min(want, len(cores))]
	var cpus []int
	for _, core := range cores {
		cpus = append(cpus, p.free.InCore(core).List()...)
	}
	slices.Sort(cpus)
	if p.missing%2 != 0 && per > 1 && len(cpus) > p.missing {
		cpus = cpus[:len(cpus)-1]
	}
	if len(cpus) == p.missing {
		p.takeSet(cpuset.New(cpus...))
	}
}

// takeSingle selects single CPUs. It starts with the cores that are partly in use. If acrossCores is set, it
// distributes the CPUs over all cores instead.
func (p *selection) takeSingle() {
	var order []int
	if p.acrossCores {
		for _, s := range p.sortedSockets() {
			order = append(order, p.free.InSocket(s).List()...)
		}
	} else {
		for _, c := range p.sortedCores() {
			order = append(order, p.free.InCore(c).List()...)
		}
	}
	for _, cpu := range order {
		if p.missing < 1 {
			return
		}
		if !p.taken.Contains(cpu) {
			p.takeSet(cpuset.New(cpu))
		}
	}
}

func errTooFew(count int, from cpuset.CPUSet) error {
	return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", count, from.Size())
}

// pickPacked selects CPUs as close to each other as possible: whole NUMA nodes and sockets first, then caches if
// byCache is set, then cores, then single CPUs.
func pickPacked(all topology.CPUs, from cpuset.CPUSet, count int, spread, byCache bool) (cpuset.CPUSet, error) {
	p := newSelection(all, from, count, spread)
	if count < 1 {
		return p.taken, nil
	}
	if count > len(p.free) {
		return cpuset.New(), errTooFew(count, from)
	}
	steps := []func(){p.takeNodes, p.takeSockets}
	if !p.nodesFirst {
		steps = []func(){p.takeSockets, p.takeNodes}
	}
	if byCache {
		steps = append(steps, p.takeCached)
	}
	if !spread {
		steps = append(steps, p.takeCores)
	}
	for _, step := range append(steps, p.takeSingle) {
		step()
		if p.missing < 1 {
			return p.taken, nil
		}
	}
	return cpuset.New(), errors.New("failed to allocate cpus")
}

// pickDistributed selects CPUs from as few NUMA nodes as possible, with an equal number from each node. This number is
// a multiple of the parameter group.
func pickDistributed(all topology.CPUs, from cpuset.CPUSet, count, group int, spread bool) (cpuset.CPUSet, error) {
	if group < 1 || count%group != 0 {
		return pickPacked(all, from, count, spread, false)
	}
	p := newSelection(all, from, count, spread)
	if count < 1 {
		return p.taken, nil
	}
	if count > len(p.free) {
		return cpuset.New(), errTooFew(count, from)
	}
	nodes := p.sortedNodes()
	free := map[int]int{}
	for _, n := range nodes {
		free[n] = p.free.InNode(n).Size()
	}
	up := func(a, b int) int { return (a-1)/b + 1 }
	groups := up(count, group)
	for size := up(groups, up(up(len(all), group), all.Nodes().Size())); size <= min(groups, len(free)); size++ {
		best, remainder := balanceNodes(nodes, free, size, count, group)
		if best == nil {
			continue
		}
		each := count / size / group * group
		for _, n := range best {
			set, err := pickPacked(all, p.free.InNode(n), each, spread, false)
			if err != nil {
				return cpuset.New(), err
			}
			p.takeSet(set)
		}
		for before := -1; p.missing > 0 && p.missing != before; {
			before = p.missing
			for _, n := range remainder {
				if p.missing < 1 || p.free.InNode(n).Size() < group {
					continue
				}
				set, err := pickPacked(all, p.free.InNode(n), group, spread, false)
				if err != nil {
					return cpuset.New(), err
				}
				p.takeSet(set)
			}
		}
		if p.missing != 0 {
			return cpuset.New(), fmt.Errorf("accounting error, not enough CPUs allocated, remaining: %v", p.missing)
		}
		return p.taken, nil
	}
	return pickPacked(all, from, count, spread, false)
}

// balanceNodes returns a set of nodes that provide the CPUs. The parameter size is the number of nodes in the set. Of
// all such sets, balanceNodes selects the set that leaves the remaining free CPUs distributed most evenly. The result
// is nil if no set of this size has enough free CPUs. If the CPUs cannot be divided equally, it also returns the nodes
// of the set that provide the remaining CPUs.
func balanceNodes(nodes []int, free map[int]int, size, count, group int) (best, remainder []int) {
	balance := math.MaxFloat64
	eachSubset(nodes, size, func(subset []int) {
		each, usable, sum := count/size/group*group, 0, 0
		left := map[int]int{}
		for n, f := range free {
			left[n] = f
		}
		for _, n := range subset {
			if free[n] < each {
				return
			}
			sum += free[n]
			usable += free[n] / group * group
			left[n] -= each
		}
		if balance == 0 || sum < count || usable < count {
			return
		}
		rest := count - each*size
		local, from := math.MaxFloat64, []int(nil)
		if rest == 0 {
			local = standardDeviation(left)
		}
		var candidates []int
		for _, n := range subset {
			if left[n] >= group {
				candidates = append(candidates, n)
			}
		}
		for k := len(candidates); rest > 0 && k >= 1; k-- {
			eachSubset(candidates, k, func(sources []int) {
				if b, ok := deviationAfter(left, sources, rest, group); ok && b < local {
					local, from = b, slices.Clone(sources)
				}
			})
		}
		if local < balance {
			balance, best, remainder = local, slices.Clone(subset), from
		}
	})
	return best, remainder
}

// deviationAfter returns the standard deviation of the number of free CPUs of each node after an allocation. In this
// allocation the given nodes provide the missing CPUs, one group of CPUs from each node in turn. deviationAfter returns
// false if these nodes have too few free CPUs.
func deviationAfter(left map[int]int, nodes []int, rest, group int) (float64, bool) {
	now := map[int]int{}
	for n, f := range left {
		now[n] = f
	}
	for rest > 0 {
		before := rest
		for _, n := range nodes {
			if rest > 0 && now[n] >= group {
				now[n] -= group
				rest -= group
			}
		}
		if rest == before {
			return 0, false
		}
	}
	return standardDeviation(now), true
}

// standardDeviation returns the standard deviation of the counts, rounded as in a kubelet.
func standardDeviation(counts map[int]int) float64 {
	round := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	var sum, squares float64
	for _, x := range counts {
		sum += float64(x)
	}
	mean := round(sum / float64(len(counts)))
	for _, x := range counts {
		squares += (float64(x) - mean) * (float64(x) - mean)
	}
	return round(math.Sqrt(squares / float64(len(counts))))
}

// eachSubset calls a function for each subset of the given size. The subset is valid only during that call.
func eachSubset(items []int, size int, visit func([]int)) {
	subset := make([]int, 0, size)
	var walk func(rest []int)
	walk = func(rest []int) {
		if len(subset) == size {
			visit(subset)
			return
		}
		for i := 0; len(subset)+len(rest)-i >= size; i++ {
			subset = append(subset, rest[i])
			walk(rest[i+1:])
			subset = subset[:len(subset)-1]
		}
	}
	if size > 0 {
		walk(items)
	}
}
