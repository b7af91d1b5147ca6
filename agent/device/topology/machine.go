package topology

import (
	"k8s.io/utils/cpuset"
)

// A CPU describes the position of a CPU in the machine. Core is the smallest ID of the CPUs of its core, so it is
// unique on the machine.
type CPU struct{ Node, Socket, Core, Cache int }

// CPUs is a set of CPUs by ID.
type CPUs map[int]CPU

// A Node is a NUMA node. It may have only memory or only CPUs.
type Node struct {
	ID        int
	Memory    uint64            // bytes, including huge pages
	HugePages map[uint64]uint64 // bytes by page size
	Distances []uint64          // distance to each node, in the order of Machine.Nodes; nil if unknown
}

// A Machine contains the CPUs and NUMA nodes of a machine.
type Machine struct {
	CPUs  CPUs
	Nodes []Node // sorted by ID; at least one
}

// collect returns the set of values that a function returns for the CPUs for which keep returns true.
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
func anyCPU(CPU) bool               { return true }
func inNode(n int) func(CPU) bool   { return func(c CPU) bool { return c.Node == n } }
func inSocket(n int) func(CPU) bool { return func(c CPU) bool { return c.Socket == n } }
func inCore(n int) func(CPU) bool   { return func(c CPU) bool { return c.Core == n } }
func inCache(n int) func(CPU) bool  { return func(c CPU) bool { return c.Cache == n } }

// IDs returns the IDs of the CPUs.
func (c CPUs) IDs() cpuset.CPUSet { return c.collect(anyCPU, number) }

// Nodes returns the IDs of the CPUs' NUMA nodes.
func (c CPUs) Nodes() cpuset.CPUSet { return c.collect(anyCPU, node) }

// Sockets returns the IDs of the CPUs' sockets.
func (c CPUs) Sockets() cpuset.CPUSet { return c.collect(anyCPU, socket) }

// Cores returns the IDs of the CPUs' cores.
func (c CPUs) Cores() cpuset.CPUSet { return c.collect(anyCPU, core) }

// Caches returns the IDs of the CPUs' uncore caches.
func (c CPUs) Caches() cpuset.CPUSet { return c.collect(anyCPU, cache) }

// InNode returns the IDs of the CPUs of a NUMA node.
func (c CPUs) InNode(n int) cpuset.CPUSet { return c.collect(inNode(n), number) }

// InSocket returns the IDs of the CPUs of a socket.
func (c CPUs) InSocket(n int) cpuset.CPUSet { return c.collect(inSocket(n), number) }

// InCore returns the IDs of the CPUs of a core.
func (c CPUs) InCore(n int) cpuset.CPUSet { return c.collect(inCore(n), number) }

// InCache returns the IDs of the CPUs of an uncore cache.
func (c CPUs) InCache(n int) cpuset.CPUSet { return c.collect(inCache(n), number) }

// SocketsOfNode returns the sockets of the CPUs of a NUMA node.
func (c CPUs) SocketsOfNode(n int) cpuset.CPUSet { return c.collect(inNode(n), socket) }

// NodesOfSocket returns the NUMA nodes of the CPUs of a socket.
func (c CPUs) NodesOfSocket(n int) cpuset.CPUSet { return c.collect(inSocket(n), node) }

// CoresOfNode returns the cores of the CPUs of a NUMA node.
func (c CPUs) CoresOfNode(n int) cpuset.CPUSet { return c.collect(inNode(n), core) }

// CoresOfSocket returns the cores of the CPUs of a socket.
func (c CPUs) CoresOfSocket(n int) cpuset.CPUSet { return c.collect(inSocket(n), core) }

// CoresOfCache returns the cores of the CPUs of an uncore cache.
func (c CPUs) CoresOfCache(n int) cpuset.CPUSet { return c.collect(inCache(n), core) }

// CachesOfNode returns the uncore caches of the CPUs of a NUMA node.
func (c CPUs) CachesOfNode(n int) cpuset.CPUSet { return c.collect(inNode(n), cache) }

// Intersect returns those CPUs that are in a set.
func (c CPUs) Intersect(set cpuset.CPUSet) CPUs {
	out := CPUs{}
	for id, cpu := range c {
		if set.Contains(id) {
			out[id] = cpu
		}
	}
	return out
}

// PerCore returns the average number of CPUs in a core, rounded down as in a kubelet.
func (c CPUs) PerCore() int { return average(len(c), c.Cores().Size()) }

// PerSocket returns the average number of CPUs in a socket, rounded down.
func (c CPUs) PerSocket() int { return average(len(c), c.Sockets().Size()) }

// PerCache returns the average number of CPUs that share an uncore cache, rounded down.
func (c CPUs) PerCache() int { return average(len(c), c.Caches().Size()) }

func average(n, of int) int {
	if of == 0 {
		return 0
	}
	return n / of
}

// IDs returns the IDs of the nodes.
func (m Machine) IDs() (out []int) {
	for _, n := range m.Nodes {
		out = append(out, n.ID)
	}
	return out
}
