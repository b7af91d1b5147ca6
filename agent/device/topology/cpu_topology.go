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

// collectValues selects CPUs with the function keep. It returns the set of values that the second function returns for
// these CPUs.
func (c CPUs) collectValues(keep func(CPU) bool, of func(id int, c CPU) int) cpuset.CPUSet {
	var out []int
	for id, cpu := range c {
		if keep(cpu) {
			out = append(out, of(id, cpu))
		}
	}
	return cpuset.New(out...)
}

func cpuID(id int, _ CPU) int       { return id }
func nodeOf(_ int, c CPU) int       { return c.Node }
func socketOf(_ int, c CPU) int     { return c.Socket }
func coreOf(_ int, c CPU) int       { return c.Core }
func cacheOf(_ int, c CPU) int      { return c.Cache }
func anyCPU(CPU) bool               { return true }
func inNode(n int) func(CPU) bool   { return func(c CPU) bool { return c.Node == n } }
func inSocket(n int) func(CPU) bool { return func(c CPU) bool { return c.Socket == n } }
func inCore(n int) func(CPU) bool   { return func(c CPU) bool { return c.Core == n } }
func inCache(n int) func(CPU) bool  { return func(c CPU) bool { return c.Cache == n } }

// IDs returns the IDs of the CPUs.
func (c CPUs) IDs() cpuset.CPUSet { return c.collectValues(anyCPU, cpuID) }

// Nodes returns the IDs of the CPUs' NUMA nodes.
func (c CPUs) Nodes() cpuset.CPUSet { return c.collectValues(anyCPU, nodeOf) }

// Sockets returns the IDs of the CPUs' sockets.
func (c CPUs) Sockets() cpuset.CPUSet { return c.collectValues(anyCPU, socketOf) }

// Cores returns the IDs of the CPUs' cores.
func (c CPUs) Cores() cpuset.CPUSet { return c.collectValues(anyCPU, coreOf) }

// Caches returns the IDs of the CPUs' uncore caches.
func (c CPUs) Caches() cpuset.CPUSet { return c.collectValues(anyCPU, cacheOf) }

// InNode returns the IDs of the CPUs of a NUMA node.
func (c CPUs) InNode(n int) cpuset.CPUSet { return c.collectValues(inNode(n), cpuID) }

// InSocket returns the IDs of the CPUs of a socket.
func (c CPUs) InSocket(n int) cpuset.CPUSet { return c.collectValues(inSocket(n), cpuID) }

// InCore returns the IDs of the CPUs of a core.
func (c CPUs) InCore(n int) cpuset.CPUSet { return c.collectValues(inCore(n), cpuID) }

// InCache returns the IDs of the CPUs of an uncore cache.
func (c CPUs) InCache(n int) cpuset.CPUSet { return c.collectValues(inCache(n), cpuID) }

// SocketsOfNode returns the sockets of the CPUs of a NUMA node.
func (c CPUs) SocketsOfNode(n int) cpuset.CPUSet { return c.collectValues(inNode(n), socketOf) }

// NodesOfSocket returns the NUMA nodes of the CPUs of a socket.
func (c CPUs) NodesOfSocket(n int) cpuset.CPUSet { return c.collectValues(inSocket(n), nodeOf) }

// CoresOfNode returns the cores of the CPUs of a NUMA node.
func (c CPUs) CoresOfNode(n int) cpuset.CPUSet { return c.collectValues(inNode(n), coreOf) }

// CoresOfSocket returns the cores of the CPUs of a socket.
func (c CPUs) CoresOfSocket(n int) cpuset.CPUSet { return c.collectValues(inSocket(n), coreOf) }

// CoresOfCache returns the cores of the CPUs of an uncore cache.
func (c CPUs) CoresOfCache(n int) cpuset.CPUSet { return c.collectValues(inCache(n), coreOf) }

// CachesOfNode returns the uncore caches of the CPUs of a NUMA node.
func (c CPUs) CachesOfNode(n int) cpuset.CPUSet { return c.collectValues(inNode(n), cacheOf) }

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
func (c CPUs) PerCore() int { return averageSize(len(c), c.Cores().Size()) }

// PerSocket returns the average number of CPUs in a socket, rounded down.
func (c CPUs) PerSocket() int { return averageSize(len(c), c.Sockets().Size()) }

// PerCache returns the average number of CPUs that share an uncore cache, rounded down.
func (c CPUs) PerCache() int { return averageSize(len(c), c.Caches().Size()) }

func averageSize(n, of int) int {
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
