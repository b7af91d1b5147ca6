package cpumanager

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/islet-edge/islet/agent/device/topology"
)

// A pick is CPUs being chosen.
type pick struct {
	all   topology.CPUs // of the machine
	free  topology.CPUs // that may still be chosen
	taken cpuset.CPUSet
	need  int
	// nodesFirst: sockets have no more than one NUMA node each, so a node is the larger unit.
	nodesFirst bool
	spread     bool // over cores, rather than to fill some
}

func newPick(all topology.CPUs, from cpuset.CPUSet, count int, spread bool) *pick {
	return &pick{all: all, free: all.Only(from), taken: cpuset.New(), need: count, spread: spread, nodesFirst: all.Sockets().Size() >= all.Nodes().Size()}
}

func (p *pick) take(set cpuset.CPUSet) {
	p.taken = p.taken.Union(set)
	p.free = p.free.Only(p.free.All().Difference(p.taken))
	p.need -= set.Size()
}

// fullest orders units so that those with the fewest free CPUs come first: what is whole
// stays whole.
func fullest(units cpuset.CPUSet, free func(int) cpuset.CPUSet) []int {
	ids := units.List()
	size := make(map[int]int, len(ids))
	for _, id := range ids {
		size[id] = free(id).Size()
	}
	slices.SortFunc(ids, func(a, b int) int { return cmp.Or(cmp.Compare(size[a], size[b]), cmp.Compare(a, b)) })
	return ids
}

func (p *pick) nodes() (out []int) {
	if p.nodesFirst {
		return fullest(p.free.Nodes(), p.free.InNode)
	}
	for _, s := range p.sockets() {
		out = append(out, fullest(p.free.NodesOfSocket(s), p.free.InNode)...)
	}
	return out
}

func (p *pick) sockets() (out []int) {
	if !p.nodesFirst {
		return fullest(p.free.Sockets(), p.free.InSocket)
	}
	for _, n := range p.nodes() {
		out = append(out, fullest(p.free.SocketsOfNode(n), p.free.InSocket)...)
	}
	return out
}

func (p *pick) cores() (out []int) {
	if p.nodesFirst {
		for _, s := range p.sockets() {
			out = append(out, fullest(p.free.CoresOfSocket(s), p.free.InCore)...)
		}
		return out
	}
	for _, n := range p.nodes() {
		out = append(out, fullest(p.free.CoresOfNode(n), p.free.InCore)...)
	}
	return out
}

func (p *pick) caches() (out []int) {
	for _, n := range p.nodes() {
		out = append(out, fullest(p.free.CachesOfNode(n), p.free.InCache)...)
	}
	return out
}

// whole takes the units of which all CPUs are free and needed.
func (p *pick) whole(units []int, free, all func(int) cpuset.CPUSet) {
	for _, id := range slices.DeleteFunc(units, func(id int) bool { return free(id).Size() != all(id).Size() }) {
		if set := all(id); set.Size() <= p.need && set.IsSubsetOf(p.free.All()) {
			p.take(set)
		}
	}
}

func (p *pick) wholeNodes()   { p.whole(p.nodes(), p.free.InNode, p.all.InNode) }
func (p *pick) wholeSockets() { p.whole(p.sockets(), p.free.InSocket, p.all.InSocket) }
func (p *pick) wholeCaches()  { p.whole(p.caches(), p.free.InCache, p.all.InCache) }
func (p *pick) wholeCores()   { p.whole(p.cores(), p.free.InCore, p.all.InCore) }

// cached takes whole caches, and then what is missing from one cache, if one has it.
func (p *pick) cached() {
	for _, id := range p.caches() {
		if p.need >= p.all.PerCache() {
			p.wholeCaches()
		}
		if p.need < 1 {
			return
		}
		p.partOf(id)
		if p.need < 1 {
			return
		}
	}
}

// partOf takes what is missing from the cores of one cache, or nothing.
func (p *pick) partOf(cache int) {
	per := p.all.PerCore()
	want := (p.need + per - 1) / per
	cores := p.free.CoresOfCache(cache).List()
	cores = cores[:min(want, len(cores))]
	var cpus []int
	for _, core := range cores {
		cpus = append(cpus, p.free.InCore(core).List()...)
	}
	slices.Sort(cpus)
	if p.need%2 != 0 && per > 1 && len(cpus) > p.need {
		cpus = cpus[:len(cpus)-1]
	}
	if len(cpus) == p.need {
		p.take(cpuset.New(cpus...))
	}
}

// rest takes single CPUs: of cores that are in use already, or over all cores.
func (p *pick) rest() {
	var order []int
	if p.spread {
		for _, s := range p.sockets() {
			order = append(order, p.free.InSocket(s).List()...)
		}
	} else {
		for _, c := range p.cores() {
			order = append(order, p.free.InCore(c).List()...)
		}
	}
	for _, cpu := range order {
		if p.need < 1 {
			return
		}
		if !p.taken.Contains(cpu) {
			p.take(cpuset.New(cpu))
		}
	}
}

func tooFew(count int, from cpuset.CPUSet) error {
	return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", count, from.Size())
}

// packed chooses CPUs that are as close to each other as can be: whole NUMA nodes and
// sockets, then caches if these matter, then cores, then single ones.
func packed(all topology.CPUs, from cpuset.CPUSet, count int, spread, byCache bool) (cpuset.CPUSet, error) {
	p := newPick(all, from, count, spread)
	if count < 1 {
		return p.taken, nil
	}
	if count > len(p.free) {
		return cpuset.New(), tooFew(count, from)
	}
	steps := []func(){p.wholeNodes, p.wholeSockets}
	if !p.nodesFirst {
		steps = []func(){p.wholeSockets, p.wholeNodes}
	}
	if byCache {
		steps = append(steps, p.cached)
	}
	if !spread {
		steps = append(steps, p.wholeCores)
	}
	for _, step := range append(steps, p.rest) {
		if step(); p.need < 1 {
			return p.taken, nil
		}
	}
	return cpuset.New(), errors.New("failed to allocate cpus")
}

// distributed chooses as many CPUs from each of as few NUMA nodes as can be, in groups.
func distributed(all topology.CPUs, from cpuset.CPUSet, count, group int, spread bool) (cpuset.CPUSet, error) {
	if group < 1 || count%group != 0 {
		return packed(all, from, count, spread, false)
	}
	p := newPick(all, from, count, spread)
	if count < 1 {
		return p.taken, nil
	}
	if count > len(p.free) {
		return cpuset.New(), tooFew(count, from)
	}
	nodes := p.nodes()
	free := map[int]int{}
	for _, n := range nodes {
		free[n] = p.free.InNode(n).Size()
	}
	up := func(a, b int) int { return (a-1)/b + 1 }
	groups := up(count, group)
	for size := up(groups, up(up(len(all), group), all.Nodes().Size())); size <= min(groups, len(free)); size++ {
		best, remainder := balanced(nodes, free, size, count, group)
		if best == nil {
			continue
		}
		each := count / size / group * group
		for _, n := range best {
			set, err := packed(all, p.free.InNode(n), each, spread, false)
			if err != nil {
				return cpuset.New(), err
			}
			p.take(set)
		}
		for before := -1; p.need > 0 && p.need != before; {
			before = p.need
			for _, n := range remainder {
				if p.need < 1 || p.free.InNode(n).Size() < group {
					continue
				}
				set, err := packed(all, p.free.InNode(n), group, spread, false)
				if err != nil {
					return cpuset.New(), err
				}
				p.take(set)
			}
		}
		if p.need != 0 {
			return cpuset.New(), fmt.Errorf("accounting error, not enough CPUs allocated, remaining: %v", p.need)
		}
		return p.taken, nil
	}
	return packed(all, from, count, spread, false)
}

// balanced finds that many nodes from which to take CPUs so that what is free afterwards is
// spread most evenly, and from which of them what cannot be divided comes.
func balanced(nodes []int, free map[int]int, size, count, group int) (best, remainder []int) {
	balance := math.MaxFloat64
	subsets(nodes, size, func(some []int) {
		each, room, sum := count/size/group*group, 0, 0
		left := map[int]int{}
		for n, f := range free {
			left[n] = f
		}
		for _, n := range some {
			if free[n] < each {
				return
			}
			sum += free[n]
			room += free[n] / group * group
			left[n] -= each
		}
		if balance == 0 || sum < count || room < count {
			return
		}
		rest := count - each*size
		local, from := math.MaxFloat64, []int(nil)
		if rest == 0 {
			local = deviation(left)
		}
		var candidates []int
		for _, n := range some {
			if left[n] >= group {
				candidates = append(candidates, n)
			}
		}
		for k := len(candidates); rest > 0 && k >= 1; k-- {
			subsets(candidates, k, func(of []int) {
				if b, ok := after(left, of, rest, group); ok && b < local {
					local, from = b, slices.Clone(of)
				}
			})
		}
		if local < balance {
			balance, best, remainder = local, slices.Clone(some), from
		}
	})
	return best, remainder
}

// after is how evenly CPUs are free once the rest has come from these nodes in turn.
func after(left map[int]int, of []int, rest, group int) (float64, bool) {
	now := map[int]int{}
	for n, f := range left {
		now[n] = f
	}
	for rest > 0 {
		before := rest
		for _, n := range of {
			if rest > 0 && now[n] >= group {
				now[n] -= group
				rest -= group
			}
		}
		if rest == before {
			return 0, false
		}
	}
	return deviation(now), true
}

func deviation(of map[int]int) float64 {
	round := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	var sum, squares float64
	for _, x := range of {
		sum += float64(x)
	}
	mean := round(sum / float64(len(of)))
	for _, x := range of {
		squares += (float64(x) - mean) * (float64(x) - mean)
	}
	return round(math.Sqrt(squares / float64(len(of))))
}

// subsets visits those of one size, in order. What it visits is valid until it returns.
func subsets(of []int, size int, visit func([]int)) {
	some := make([]int, 0, size)
	var walk func(rest []int)
	walk = func(rest []int) {
		if len(some) == size {
			visit(some)
			return
		}
		for i := 0; len(some)+len(rest)-i >= size; i++ {
			some = append(some, rest[i])
			walk(rest[i+1:])
			some = some[:len(some)-1]
		}
	}
	if size > 0 {
		walk(of)
	}
}
