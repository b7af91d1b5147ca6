package cpumanager

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/realtime"
)

// Assignments contains the exclusive CPUs of containers, by pod and container.
type Assignments map[types.UID]map[string]cpuset.CPUSet

// Clone returns a deep copy.
func (g Assignments) Clone() Assignments {
	out := Assignments{}
	for uid, containers := range g {
		for name, set := range containers {
			out.Put(uid, name, set)
		}
	}
	return out
}

// Put sets the exclusive CPUs of a container.
func (g Assignments) Put(uid types.UID, container string, set cpuset.CPUSet) {
	if g[uid] == nil {
		g[uid] = map[string]cpuset.CPUSet{}
	}
	g[uid][container] = set
}

// Union returns the union of all exclusive CPUs.
func (g Assignments) Union() cpuset.CPUSet {
	out := cpuset.New()
	for _, containers := range g {
		for _, set := range containers {
			out = out.Union(set)
		}
	}
	return out
}

// A Static implements the policy "static" for one machine.
type Static struct {
	cpus          topology.CPUs
	options       Options
	reserved      cpuset.CPUSet // never exclusive
	isolated      cpuset.CPUSet // only for containers that request isolated CPUs
	reservedCores cpuset.CPUSet // all CPUs of the cores that contain a reserved CPU
}

// Config is the input of New.
type Config struct {
	Machine  topology.Machine
	Options  Options
	Reserved cpuset.CPUSet // reservedSystemCPUs; if empty, New selects Count CPUs
	Count    int           // number of reserved CPUs
	// Isolated contains the CPUs that only containers with the annotation keys.IsolatedCPUs get. It is empty if no pod may have it.
	Isolated cpuset.CPUSet
	Topology string // the topology manager's policy
}

// New returns the policy. It fails if the machine does not support the configuration.
func New(c Config) (*Static, error) {
	s := &Static{cpus: c.Machine.CPUs, options: c.Options, reserved: c.Reserved, isolated: c.Isolated}
	if c.Options.BySocket {
		if c.Topology == topology.SingleNode {
			return nil, fmt.Errorf(
				"Topology manager %s policy is incompatible with CPUManager align-by-socket policy option", c.Topology)
		}
		if s.cpus.Sockets().Size() > s.cpus.Nodes().Size() {
			return nil, errors.New("Align by socket is not compatible with hardware where number of sockets are more than number of NUMA")
		}
	}
	if c.Count < 1 {
		return nil, errors.New("[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")
	}
	if s.reserved.IsEmpty() {
		s.reserved, _ = s.takeCPUs(s.cpus.IDs().Difference(s.isolated), c.Count)
	}
	if s.reserved.Size() != c.Count || !s.reserved.IsSubsetOf(s.cpus.IDs()) {
		return nil, fmt.Errorf("[cpumanager] unable to reserve the required amount of CPUs (size of %s did not equal %d)",
			s.reserved, c.Count)
	}
	if !s.isolated.IsEmpty() && s.SharedCPUs(nil).IsEmpty() { // containers with an empty set could use all CPUs
		return nil, fmt.Errorf("no CPU is left for containers without CPUs of their own: realTime.pods has isolatedCPUs, and the kernel "+
			"isolates %s; reservedSystemCPUs are %s, and the cpuManagerPolicyOption strict-cpu-reservation is %t: "+
			"isolate or reserve fewer CPUs", s.isolated, s.reserved, s.options.Strict)
	}
	s.reservedCores = cpuset.New()
	for _, cpu := range s.reserved.List() {
		s.reservedCores = s.reservedCores.Union(s.cpus.InCore(s.cpus[cpu].Core))
	}
	return s, nil
}

// Reserved returns the CPUs that are never exclusive.
func (s *Static) Reserved() cpuset.CPUSet { return s.reserved }

// Allocatable returns the CPUs that may become exclusive.
func (s *Static) Allocatable() cpuset.CPUSet { return s.cpus.IDs().Difference(s.reserved) }

// SharedCPUs returns the CPUs that all containers without exclusive CPUs share.
func (s *Static) SharedCPUs(g Assignments) cpuset.CPUSet {
	all := s.cpus.IDs().Difference(s.isolated)
	if s.options.Strict {
		all = all.Difference(s.reserved)
	}
	return all.Difference(g.Union())
}

// Check returns an error if stored assignments are impossible. That happens if the machine or the configuration has
// changed.
func (s *Static) Check(g Assignments) error {
	seen := map[types.UID]cpuset.CPUSet{}
	for uid, containers := range g {
		for name, set := range containers {
			if !set.IsSubsetOf(s.Allocatable()) {
				return fmt.Errorf("pod: %s, container: %s cpuset: %q is not a subset of the allocatable CPUs, %q",
					uid, name, set, s.Allocatable())
			}
			for other, cpus := range seen {
				if both := cpus.Intersection(set); other != uid && !both.IsEmpty() {
					return fmt.Errorf("pods %s and %s both have CPUs %q", uid, other, both)
				}
			}
		}
		seen[uid] = Assignments{uid: containers}.Union()
	}
	return nil
}

// PodWants returns the maximum number of exclusive CPUs that a pod needs at any one time.
func PodWants(pod *v1.Pod) int {
	sidecars, peak, main := 0, 0, 0
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		n := demand.ExclusiveCPUs(pod, ctr)
		switch kind {
		case podspec.Sidecar:
			sidecars += n
		case podspec.Init:
			peak = max(peak, sidecars+n)
		case podspec.Main:
			main += n
		}
	}
	return max(peak, sidecars+main)
}

// reusableCPUs returns the CPUs that a container can reuse from the pod's init containers, which end before it starts. It
// excludes CPUs that other containers of the pod have reused already.
func reusableCPUs(pod *v1.Pod, name string, g Assignments) cpuset.CPUSet {
	out := cpuset.New()
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		if ctr.Name == name {
			break
		}
		set := g[pod.UID][ctr.Name]
		if kind == podspec.Init {
			out = out.Union(set)
		} else {
			out = out.Difference(set)
		}
	}
	return out
}

// availableCPUs returns the CPUs that can be assigned to a container in addition to those that it can reuse.
func (s *Static) availableCPUs(pod *v1.Pod, name string, g Assignments) cpuset.CPUSet {
	return s.forContainer(pod, name, s.Allocatable().Difference(g.Union()))
}

// forContainer returns the isolated CPUs of a set if the container requests isolated CPUs. Otherwise it returns the other CPUs of the set.
func (s *Static) forContainer(pod *v1.Pod, name string, set cpuset.CPUSet) cpuset.CPUSet {
	if realtime.WantsIsolatedCPUs(pod, name) {
		return set.Intersection(s.isolated)
	}
	return set.Difference(s.isolated)
}

// HasIsolated reports whether a set contains CPUs, and all of them are isolated.
func (s *Static) HasIsolated(set cpuset.CPUSet) bool {
	return !set.IsEmpty() && set.IsSubsetOf(s.isolated)
}

// An IsolationError is the error for a request for more isolated CPUs than are free.
type IsolationError struct{ text string }

// Error returns the message.
func (m *IsolationError) Error() string { return m.text }

// Reason returns the reason for the pod's status.
func (m *IsolationError) Reason() string { return realtime.Unavailable }

// Hints returns the sets of NUMA nodes that can provide a container's exclusive CPUs. It returns nil if the container
// needs none.
func (s *Static) Hints(pod *v1.Pod, ctr *v1.Container, g Assignments) topology.Hints {
	n := demand.ExclusiveCPUs(pod, ctr)
	if n == 0 {
		return nil
	}
	if has, ok := g[pod.UID][ctr.Name]; ok {
		if has.Size() != n {
			return topology.Hints{string(v1.ResourceCPU): {}}
		}
		return s.computeHints(n, has, cpuset.New())
	}
	return s.computeHints(n, s.availableCPUs(pod, ctr.Name, g), s.forContainer(pod, ctr.Name, reusableCPUs(pod, ctr.Name, g)))
}

// PodHints returns the hints for all containers of a pod together.
func (s *Static) PodHints(pod *v1.Pod, g Assignments) topology.Hints {
	n := PodWants(pod)
	if n == 0 {
		return nil
	}
	own := Assignments{pod.UID: g[pod.UID]}.Union()
	if own.Size() == n {
		return s.computeHints(n, own, cpuset.New())
	}
	free := cpuset.New()
	for _, ctr := range podspec.Containers(&pod.Spec) {
		free = free.Union(s.availableCPUs(pod, ctr.Name, g))
	}
	return s.computeHints(n, free, own)
}

func (s *Static) computeHints(n int, free, must cpuset.CPUSet) topology.Hints {
	ids := s.cpus.Nodes().List()
	minNodes := len(ids)
	out := []topology.Hint{}
	topology.EachMask(ids, func(m topology.Mask) {
		total, matching := 0, 0
		for cpu, at := range s.cpus {
			switch in := m.Has(at.Node); {
			case must.Contains(cpu) && !in:
				matching = -1 << 20
			case must.Contains(cpu), in && free.Contains(cpu):
				matching++
			}
			if m.Has(at.Node) {
				total++
			}
		}
		if total >= n {
			minNodes = min(minNodes, m.Count())
		}
		if matching >= n {
			out = append(out, topology.Hint{Nodes: m})
		}
	})
	for i := range out {
		out[i].Preferred = out[i].Nodes.Count() == minNodes || s.options.BySocket && s.inSockets(out[i].Nodes, minNodes)
	}
	return topology.Hints{string(v1.ResourceCPU): out}
}

// inSockets reports whether the NUMA nodes in m belong to exactly n sockets. The number n is the minimum number of
// sockets that contain the given number of nodes.
func (s *Static) inSockets(m topology.Mask, nodes int) bool {
	perSocket := s.cpus.Nodes().Size() / s.cpus.Sockets().Size()
	if perSocket == 0 {
		return false
	}
	return s.socketsOf(m).Size() == (nodes+perSocket-1)/perSocket
}

func (s *Static) socketsOf(m topology.Mask) cpuset.CPUSet {
	out := cpuset.New()
	for _, n := range m.IDs() {
		out = out.Union(s.cpus.SocketsOfNode(n))
	}
	return out
}

// An AlignmentError is the error for a request that cannot be satisfied with whole cores (full-pcpus-only).
type AlignmentError struct{ text string }

// Error returns a kubelet's message.
func (m *AlignmentError) Error() string { return m.text }

// Reason returns the reason for the pod's status, as in a kubelet.
func (m *AlignmentError) Reason() string { return "SMTAlignmentError" }

// Assign assigns exclusive CPUs to a container and records them in g. It prefers the CPUs of the given NUMA nodes; zero
// means any node. It does nothing if the container already has its CPUs or needs none.
func (s *Static) Assign(pod *v1.Pod, ctr *v1.Container, nodes topology.Mask, g Assignments) error {
	n := demand.ExclusiveCPUs(pod, ctr)
	if n == 0 {
		return nil
	}
	// A container keeps its CPUs even if full-pcpus-only was set after the assignment, as in a kubelet from 1.37 on.
	if _, has := g[pod.UID][ctr.Name]; has {
		return nil
	}
	if s.options.FullCores {
		per := max(s.cpus.PerCore(), 1)
		free := s.SharedCPUs(g).Difference(s.reservedCores).Size()
		if n%per != 0 {
			return &AlignmentError{fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", n, per)}
		}
		if n > free && !realtime.WantsIsolatedCPUs(pod, ctr.Name) {
			return &AlignmentError{fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: "+
				"available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", free, n, per)}
		}
	}
	from := s.availableCPUs(pod, ctr.Name, g).Union(s.forContainer(pod, ctr.Name, reusableCPUs(pod, ctr.Name, g)))
	if realtime.WantsIsolatedCPUs(pod, ctr.Name) && from.Size() < n {
		return &IsolationError{fmt.Sprintf("annotation %s%s: the container requests %d CPUs, and %d of the CPUs that the kernel isolates "+
			"(%q) are free", keys.IsolatedCPUs, ctr.Name, n, from.Size(), s.isolated)}
	}
	out := cpuset.New()
	if nodes != 0 {
		local := cpuset.New()
		if s.options.BySocket {
			for _, id := range s.socketsOf(nodes).List() {
				local = local.Union(from.Intersection(s.cpus.InSocket(id)))
			}
		} else {
			for _, id := range nodes.IDs() {
				local = local.Union(from.Intersection(s.cpus.InNode(id)))
			}
		}
		set, err := s.takeCPUs(local, min(n, local.Size()))
		if err != nil {
			return err
		}
		out = set
	}
	more, err := s.takeCPUs(from.Difference(out), n-out.Size())
	if err != nil {
		return err
	}
	g.Put(pod.UID, ctr.Name, out.Union(more))
	return nil
}

func (s *Static) takeCPUs(from cpuset.CPUSet, n int) (cpuset.CPUSet, error) {
	if s.options.AcrossNodes {
		group := 1
		if s.options.FullCores {
			group = max(s.cpus.PerCore(), 1)
		}
		return pickDistributed(s.cpus, from, n, group, s.options.AcrossCores)
	}
	return pickPacked(s.cpus, from, n, s.options.AcrossCores, s.options.ByCache)
}

// ShareCache reports whether CPUs share one uncore cache.
func (s *Static) ShareCache(set cpuset.CPUSet) bool {
	return s.cpus.Intersect(set).Caches().Size() <= 1
}

// PerNode counts CPUs by NUMA node.
func (s *Static) PerNode(set cpuset.CPUSet) map[int]int {
	out := map[int]int{}
	for _, at := range s.cpus.Intersect(set) {
		out[at.Node]++
	}
	return out
}

// String returns the assignments as text for logs.
func (g Assignments) String() string {
	var b strings.Builder
	for uid, containers := range g {
		for name, set := range containers {
			fmt.Fprintf(&b, "%s/%s=%s ", uid, name, set)
		}
	}
	return strings.TrimSpace(b.String())
}
