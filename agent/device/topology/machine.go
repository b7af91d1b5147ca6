package topology

import (
	"k8s.io/utils/cpuset"
)

// A CPU is where a CPU is. Core is unique on the machine: the least number of its CPUs.
type CPU struct{ Node, Socket, Core, Cache int }

// CPUs are some by their numbers.
type CPUs map[int]CPU

// A Node is a NUMA node. One may have memory only, or CPUs only.
type Node struct {
	ID        int
	Memory    uint64            // bytes, with those in huge pages
	HugePages map[uint64]uint64 // bytes in them by the size of a page
	Distances []uint64          // to each node, in the order of Machine.Nodes; nil: the kernel does not say
}

// A Machine is all of it.
type Machine struct {
	CPUs  CPUs
	Nodes []Node // by ID; at least one
}

// collect lists the values of one property of the CPUs that keep says.
func (c CPUs) collect(keep func(CPU) bool, of func(id int, c CPU) int) cpuset.CPUSet {
	var out []int
	for id, cpu := range c {
		if keep(cpu) {
			out = append(out, of(id, cpu))
		}
	}
	return cpuset.New(out...)
}

func number(id int, _ CPU) int      { return id }
func node(_ int, c CPU) int         { return c.Node }
func socket(_ int, c CPU) int       { return c.Socket }
func core(_ int, c CPU) int         { return c.Core }
func cache(_ int, c CPU) int        { return c.Cache }
func every(CPU) bool                { return true }
func inNode(n int) func(CPU) bool   { return func(c CPU) bool { return c.Node == n } }
func inSocket(n int) func(CPU) bool { return func(c CPU) bool { return c.Socket == n } }
func inCore(n int) func(CPU) bool   { return func(c CPU) bool { return c.Core == n } }
func inCache(n int) func(CPU) bool  { return func(c CPU) bool { return c.Cache == n } }

// All are the numbers of the CPUs.
func (c CPUs) All() cpuset.CPUSet { return c.collect(every, number) }

// Nodes, Sockets, Cores and Caches are those that the CPUs are in.
func (c CPUs) Nodes() cpuset.CPUSet   { return c.collect(every, node) }
func (c CPUs) Sockets() cpuset.CPUSet { return c.collect(every, socket) }
func (c CPUs) Cores() cpuset.CPUSet   { return c.collect(every, core) }
func (c CPUs) Caches() cpuset.CPUSet  { return c.collect(every, cache) }

// InNode, InSocket, InCore and InCache are the numbers of those that are there.
func (c CPUs) InNode(n int) cpuset.CPUSet   { return c.collect(inNode(n), number) }
func (c CPUs) InSocket(n int) cpuset.CPUSet { return c.collect(inSocket(n), number) }
func (c CPUs) InCore(n int) cpuset.CPUSet   { return c.collect(inCore(n), number) }
func (c CPUs) InCache(n int) cpuset.CPUSet  { return c.collect(inCache(n), number) }

// What of one kind is in one of another.
func (c CPUs) SocketsOfNode(n int) cpuset.CPUSet { return c.collect(inNode(n), socket) }
func (c CPUs) NodesOfSocket(n int) cpuset.CPUSet { return c.collect(inSocket(n), node) }
func (c CPUs) CoresOfNode(n int) cpuset.CPUSet   { return c.collect(inNode(n), core) }
func (c CPUs) CoresOfSocket(n int) cpuset.CPUSet { return c.collect(inSocket(n), core) }
func (c CPUs) CoresOfCache(n int) cpuset.CPUSet  { return c.collect(inCache(n), core) }
func (c CPUs) CachesOfNode(n int) cpuset.CPUSet  { return c.collect(inNode(n), cache) }

// Only are those of them that are in a set.
func (c CPUs) Only(set cpuset.CPUSet) CPUs {
	out := CPUs{}
	for id, cpu := range c {
		if set.Contains(id) {
			out[id] = cpu
		}
	}
	return out
}

// PerCore is how many CPUs a core has on average, rounded down as a kubelet does.
func (c CPUs) PerCore() int { return average(len(c), c.Cores().Size()) }

// PerSocket and PerCache are the same of sockets and caches.
func (c CPUs) PerSocket() int { return average(len(c), c.Sockets().Size()) }
func (c CPUs) PerCache() int  { return average(len(c), c.Caches().Size()) }

func average(n, of int) int {
	if of == 0 {
		return 0
	}
	return n / of
}

// IDs are those of the nodes.
func (m Machine) IDs() (out []int) {
	for _, n := range m.Nodes {
		out = append(out, n.ID)
	}
	return out
}
