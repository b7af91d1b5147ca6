package upstream

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	machine "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

// pinningFile contains the decisions of a kubelet for the tests of agent/device/topology, agent/device/cpumanager and
// agent/device/memorymanager. The flag -update writes it.
const pinningFile = "../../../agent/device/cpumanager/testdata/upstream.json"

// A CPUCase is a machine with a kubelet's CPU assignments for a sequence of requests.
type CPUCase struct {
	Sockets, NodesPerSocket, CachesPerNode, CoresPerCache, Threads int
	Options                                                        map[string]string
	Reserved                                                       int
	Steps                                                          []CPUStep
}

// A CPUStep is a container that requests CPUs or that ends.
type CPUStep struct {
	Asks  int    // zero: the pod Gone releases its CPUs
	Gone  int    `json:",omitempty"`
	Nodes uint64 `json:",omitempty"`
	Got   string // CPUs, or "!" with the error
	Hints map[uint64]bool
}

// A MergeCase contains topology hints and the result of a policy.
type MergeCase struct {
	Policy    string
	Closest   bool
	Distances [][]uint64
	Hints     [][][2]uint64 // by resource: nodes, and 1 if preferred; null: no preference
	Nodes     uint64
	Preferred bool
	Admit     bool
}

// A MemoryCase is a machine with a kubelet's memory assignments for a sequence of requests.
type MemoryCase struct {
	Memory, Reserved []uint64 // bytes by node
	Steps            []MemoryStep
}

// A MemoryStep is a container that requests memory or that ends.
type MemoryStep struct {
	Asks  uint64
	Gone  int    `json:",omitempty"`
	Nodes uint64 `json:",omitempty"`
	Got   uint64 // nodes
	Error string `json:",omitempty"`
	Hints map[uint64]bool
}

type pinning struct {
	CPU    []CPUCase
	Merge  []MergeCase
	Memory []MemoryCase
}

// An affinity is a topology manager with a fixed decision.
type affinity struct{ mask uint64 }

func (a *affinity) GetAffinity(klog.Logger, string, string) topologymanager.TopologyHint {
	if a.mask == 0 {
		return topologymanager.TopologyHint{}
	}
	return topologymanager.TopologyHint{NUMANodeAffinity: mask(a.mask)}
}
func (*affinity) GetPolicy() topologymanager.Policy { return topologymanager.NewNonePolicy() }
func (*affinity) Name() string                      { return "" }

func mask(m uint64) bitmask.BitMask {
	var ids []int
	for i := range 64 {
		if m&(1<<i) != 0 {
			ids = append(ids, i)
		}
	}
	b, _ := bitmask.NewBitMask(ids...)
	return b
}

func number(b bitmask.BitMask) (m uint64) {
	for _, id := range b.GetBits() {
		m |= 1 << id
	}
	return m
}

func hinted(list []topologymanager.TopologyHint) map[uint64]bool {
	out := map[uint64]bool{}
	for _, h := range list {
		out[number(h.NUMANodeAffinity)] = h.Preferred
	}
	return out
}

func asking(uid int, cpus int64, memory uint64) *v1.Pod {
	p := &v1.Pod{}
	p.UID = types.UID(fmt.Sprint(uid))
	l := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI), v1.ResourceMemory: *resource.NewQuantity(int64(memory), resource.BinarySI)}
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: l, Limits: l}}}
	p.Status.QOSClass = v1.PodQOSGuaranteed
	return p
}

func (c *CPUCase) topology() *topology.CPUTopology {
	t := &topology.CPUTopology{CPUDetails: topology.CPUDetails{}}
	cores := c.Sockets * c.NodesPerSocket * c.CachesPerNode * c.CoresPerCache
	t.NumCores, t.NumCPUs, t.NumSockets, t.NumNUMANodes, t.NumUncoreCache = cores, cores*c.Threads, c.Sockets,
		c.Sockets*c.NodesPerSocket, c.Sockets*c.NodesPerSocket*c.CachesPerNode
	for core := range cores {
		cache := core / c.CoresPerCache
		node := cache / c.CachesPerNode
		for thread := range c.Threads {
			t.CPUDetails[core+thread*cores] = topology.CPUInfo{CoreID: core, UncoreCacheID: cache, NUMANodeID: node, SocketID: node / c.NodesPerSocket}
		}
	}
	return t
}

func cpuCase(t *testing.T, r *rand.Rand, log klog.Logger) (c CPUCase) {
	c = CPUCase{Sockets: 1 + r.IntN(2), NodesPerSocket: 1 + r.IntN(3), CachesPerNode: 1 + r.IntN(2), CoresPerCache: 1 + r.IntN(4), Threads: 1 + r.IntN(2), Reserved: 1, Options: map[string]string{}}
	if r.IntN(2) == 0 {
		for _, set := range [][]string{{"full-pcpus-only"}, {"distribute-cpus-across-numa"}, {"full-pcpus-only", "distribute-cpus-across-numa"}, {"align-by-socket"}, {"distribute-cpus-across-cores"},
			{"prefer-align-cpus-by-uncorecache"}, {"strict-cpu-reservation"}, {"prefer-align-cpus-by-uncorecache", "full-pcpus-only"}}[r.IntN(8):][:1] {
			for _, o := range set {
				c.Options[o] = "true"
			}
		}
	}
	topo := c.topology()
	if topo.NumCPUs < 2 {
		return cpuCase(t, r, log)
	}
	at := &affinity{}
	p, err := cpumanager.NewStaticPolicy(log, topo, c.Reserved, cpuset.New(), at, c.Options)
	if err != nil {
		t.Fatal(err)
	}
	s := cpustate.NewMemoryState(log)
	if err := p.Start(log, s); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if i > 2 && r.IntN(3) == 0 {
			gone := r.IntN(i)
			if err := p.RemoveContainer(log, s, fmt.Sprint(gone), "c"); err != nil {
				t.Fatal(err)
			}
			c.Steps = append(c.Steps, CPUStep{Gone: gone})
			continue
		}
		step := CPUStep{Asks: 1 + r.IntN(max(topo.NumCPUs/2, 1))}
		at.mask = 0
		if r.IntN(2) == 0 {
			at.mask = 1 + r.Uint64N(1<<topo.NumNUMANodes-1)
		}
		step.Nodes = at.mask
		pod := asking(i, int64(step.Asks), 1<<20)
		step.Hints = hinted(p.GetTopologyHints(log, s, pod, &pod.Spec.Containers[0], lifecycle.AddOperation)["cpu"])
		if err := p.Allocate(log, s, pod, &pod.Spec.Containers[0], lifecycle.AddOperation); err != nil {
			step.Got = "!" + err.Error()
		} else {
			set, _ := s.GetCPUSet(fmt.Sprint(i), "c")
			step.Got = set.String()
		}
		c.Steps = append(c.Steps, step)
	}
	return c
}

func mergeCase(r *rand.Rand, log klog.Logger) (c MergeCase) {
	n := 1 + r.IntN(4)
	info := &topologymanager.NUMAInfo{NUMADistances: topologymanager.NUMADistances{}}
	for i := range n {
		info.Nodes = append(info.Nodes, i)
		var row []uint64
		for j := range n {
			d := uint64(10)
			if i != j {
				d = 11 + uint64((i+1)*(j+1))%7
			}
			row = append(row, d)
		}
		info.NUMADistances[i] = row
		c.Distances = append(c.Distances, row)
	}
	c.Closest = r.IntN(2) == 0
	var list []map[string][]topologymanager.TopologyHint
	for range 1 + r.IntN(3) {
		if r.IntN(6) == 0 {
			list = append(list, nil)
			c.Hints = append(c.Hints, nil)
			continue
		}
		row, plain := []topologymanager.TopologyHint{}, [][2]uint64{}
		for range r.IntN(5) {
			m, preferred := 1+r.Uint64N(1<<n-1), r.IntN(2)
			row = append(row, topologymanager.TopologyHint{NUMANodeAffinity: mask(m), Preferred: preferred == 1})
			plain = append(plain, [2]uint64{m, uint64(preferred)})
		}
		list = append(list, map[string][]topologymanager.TopologyHint{"r": row})
		c.Hints = append(c.Hints, plain)
	}
	o := topologymanager.PolicyOptions{PreferClosestNUMA: c.Closest}
	p := []topologymanager.Policy{topologymanager.NewBestEffortPolicy(info, o), topologymanager.NewRestrictedPolicy(info, o), topologymanager.NewSingleNumaNodePolicy(info, o)}[r.IntN(3)]
	c.Policy = p.Name()
	h, admit := p.Merge(log, list)
	if h.NUMANodeAffinity != nil {
		c.Nodes = number(h.NUMANodeAffinity)
	}
	c.Preferred, c.Admit = h.Preferred, admit
	return c
}

func memoryCase(t *testing.T, r *rand.Rand, log klog.Logger) (c MemoryCase) {
	n := 1 + r.IntN(3)
	info := &machine.MachineInfo{}
	reserved := map[int]map[v1.ResourceName]uint64{}
	for i := range n {
		c.Memory = append(c.Memory, uint64(1+r.IntN(8))<<30)
		c.Reserved = append(c.Reserved, uint64(r.IntN(2))<<28)
		if i == 0 {
			c.Reserved[0] = 1 << 28
		}
		info.Topology = append(info.Topology, machine.Node{Id: i, Memory: c.Memory[i]})
		reserved[i] = map[v1.ResourceName]uint64{v1.ResourceMemory: c.Reserved[i]}
	}
	at := &affinity{}
	p, err := memorymanager.NewPolicyStatic(log, info, reserved, at)
	if err != nil {
		t.Fatal(err)
	}
	s := memorystate.NewMemoryState(log)
	if err := p.Start(log, s); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if i > 2 && r.IntN(3) == 0 {
			gone := r.IntN(i)
			p.RemoveContainer(log, s, fmt.Sprint(gone), "c")
			c.Steps = append(c.Steps, MemoryStep{Gone: gone})
			continue
		}
		step := MemoryStep{Asks: uint64(1+r.IntN(40)) << 28}
		pod := asking(i, 1, step.Asks)
		step.Hints = hinted(p.GetTopologyHints(log, s, pod, &pod.Spec.Containers[0], lifecycle.AddOperation)["memory"])
		at.mask = 0
		if choice := slices.Sorted(maps.Keys(step.Hints)); len(choice) > 0 && r.IntN(2) == 0 {
			at.mask = choice[r.IntN(len(choice))] // like a policy
		}
		step.Nodes = at.mask
		if err := p.Allocate(t.Context(), s, pod, &pod.Spec.Containers[0], lifecycle.AddOperation); err != nil {
			step.Error = err.Error()
		} else {
			for _, b := range s.GetMemoryBlocks(fmt.Sprint(i), "c") {
				for _, id := range b.NUMAAffinity {
					step.Got |= 1 << id
				}
			}
		}
		c.Steps = append(c.Steps, step)
	}
	return c
}

// TestPinning checks that the stored decisions are those of this version of Kubernetes.
func TestPinning(t *testing.T) {
	if err := utilfeature.DefaultMutableFeatureGate.Set("CPUManagerPolicyAlphaOptions=true"); err != nil {
		t.Fatal(err)
	}
	log := klog.NewKlogr().V(100)
	r := rand.New(rand.NewPCG(1, 2))
	var all pinning
	for range 150 {
		all.CPU = append(all.CPU, cpuCase(t, r, log))
		all.Memory = append(all.Memory, memoryCase(t, r, log))
		all.Merge = append(all.Merge, mergeCase(r, log), mergeCase(r, log))
	}
	want, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(pinningFile, append(want, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(pinningFile)
	if err != nil || string(have) != string(want)+"\n" {
		t.Errorf("%s is stale (%v): go test ./upstream -run TestPinning -update", pinningFile, err)
	}
}
