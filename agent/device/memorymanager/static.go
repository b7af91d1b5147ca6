package memorymanager

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/podspec"
)

// A nodeState is the state of a NUMA node.
type nodeState struct {
	total map[v1.ResourceName]uint64 // allocatable
	free  map[v1.ResourceName]uint64
	users int           // number of blocks on the node
	group topology.Mask // the nodes to which these blocks belong; the node alone if there are none
}

// A Static implements the policy "Static" for one machine.
type Static struct {
	ids   []int
	total map[int]map[v1.ResourceName]uint64
}

// Reserved contains the option reservedMemory, by NUMA node.
type Reserved map[int]v1.ResourceList

// New returns the policy. Like a kubelet, it fails unless the reservations of all NUMA nodes add up to the reserved
// memory and huge pages of the machine.
func New(m topology.Machine, by Reserved, reserved v1.ResourceList) (*Static, error) {
	s := &Static{ids: m.IDs(), total: map[int]map[v1.ResourceName]uint64{}}
	sum := v1.ResourceList{}
	for id, list := range by {
		if !slices.Contains(s.ids, id) {
			return nil, fmt.Errorf("the reserved memory configuration references a NUMA node %d that does not exist on this machine", id)
		}
		for name, q := range list {
			all := sum[name]
			all.Add(q)
			sum[name] = all
		}
	}
	names := map[v1.ResourceName]bool{}
	for _, l := range []v1.ResourceList{sum, reserved} {
		for name := range l {
			names[name] = name == v1.ResourceMemory || isHuge(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		have, want := sum[name], reserved[name]
		if names[name] && have.Cmp(want) != 0 {
			return nil, fmt.Errorf("the total amount %q of type %q is not equal to the value %q determined by Node Allocatable feature",
				have.String(), name, want.String())
		}
	}
	if q := sum[v1.ResourceMemory]; q.Sign() <= 0 {
		return nil, errors.New("[memorymanager] you should specify the system reserved memory")
	}
	for _, n := range m.Nodes {
		t := map[v1.ResourceName]uint64{}
		rest := n.Memory
		less := func(name v1.ResourceName, have uint64) uint64 {
			q := by[n.ID][name]
			return have - min(have, uint64(max(q.Value(), 0)))
		}
		for size, bytes := range n.HugePages {
			rest -= min(rest, bytes)
			name := v1.ResourceName(fmt.Sprint(v1.ResourceHugePagesPrefix, resource.NewQuantity(int64(size), resource.BinarySI)))
			t[name] = less(name, bytes)
		}
		t[v1.ResourceMemory] = less(v1.ResourceMemory, rest)
		s.total[n.ID] = t
	}
	return s, nil
}

func isHuge(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// Allocatable returns the allocatable memory by node and kind.
func (s *Static) Allocatable() (out []Block) {
	for _, id := range s.ids {
		for _, kind := range slices.Sorted(maps.Keys(s.total[id])) {
			out = append(out, Block{Kind: kind, Nodes: topology.MaskOf(id), Size: s.total[id][kind]})
		}
	}
	return out
}

// nodeStates returns the state of each NUMA node after the assignments in g.
func (s *Static) nodeStates(g *Assignments) map[int]*nodeState {
	out := map[int]*nodeState{}
	for _, id := range s.ids {
		out[id] = &nodeState{total: s.total[id], free: maps.Clone(s.total[id]), group: topology.MaskOf(id)}
	}
	for _, r := range g.rows {
		for _, b := range r.blocks {
			rest := b.Held
			for _, id := range b.Nodes.IDs() {
				c := out[id]
				if c == nil {
					continue
				}
				c.users, c.group = c.users+1, b.Nodes
				part := min(rest, c.free[b.Kind])
				c.free[b.Kind] -= part
				rest -= part
			}
		}
	}
	return out
}

// Check returns an error if stored assignments are impossible. This happens if the machine or the configuration has
// changed.
func (s *Static) Check(g *Assignments) error {
	all := topology.MaskOf(s.ids...)
	sum := map[v1.ResourceName]uint64{}
	for _, r := range g.rows {
		for _, b := range r.blocks {
			if b.Nodes == 0 || b.Nodes&^all != 0 {
				return fmt.Errorf("[memorymanager] (pod: %s, container: %s) the memory assignment uses the NUMA that does not exist",
					r.uid, r.container)
			}
			if _, there := s.total[b.Nodes.IDs()[0]][b.Kind]; !there {
				return fmt.Errorf("[memorymanager] (pod: %s, container: %s) "+
					"the memory assignment uses memory resource that does not exist", r.uid, r.container)
			}
			sum[b.Kind] += b.Held
		}
	}
	for kind, used := range sum {
		var have uint64
		for _, id := range s.ids {
			have += s.total[id][kind]
		}
		if used > have {
			return fmt.Errorf("[memorymanager] containers have %d bytes of %s, but only %d are allocatable", used, kind, have)
		}
	}
	return nil
}

// RequestedMemory returns the memory that a container requests, by kind. It is empty if the container does not get memory from
// particular NUMA nodes.
func RequestedMemory(pod *v1.Pod, ctr *v1.Container) map[v1.ResourceName]uint64 {
	if pod.Spec.Resources != nil || demand.Class(pod) != v1.PodQOSGuaranteed {
		return nil
	}
	out := map[v1.ResourceName]uint64{}
	for name, limit := range ctr.Resources.Limits {
		if q, asked := ctr.Resources.Requests[name]; asked {
			limit = q
		}
		if (name == v1.ResourceMemory || isHuge(name)) && limit.Sign() > 0 {
			out[name] = uint64(limit.Value())
		}
	}
	return out
}

func podWants(pod *v1.Pod) map[v1.ResourceName]uint64 {
	sidecars, peak, main := map[v1.ResourceName]uint64{}, map[v1.ResourceName]uint64{}, map[v1.ResourceName]uint64{}
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		for name, n := range RequestedMemory(pod, ctr) {
			switch kind {
			case podspec.Sidecar:
				sidecars[name] += n
			case podspec.Init:
				peak[name] = max(peak[name], sidecars[name]+n)
			case podspec.Main:
				main[name] += n
			}
		}
	}
	for name, n := range sidecars {
		main[name] += n
	}
	for name, n := range peak {
		main[name] = max(main[name], n)
	}
	return main
}

func sumMemory(cells map[int]*nodeState, m topology.Mask, kind v1.ResourceName, of func(*nodeState) map[v1.ResourceName]uint64) (n uint64) {
	for _, id := range m.IDs() {
		if c := cells[id]; c != nil {
			n += of(c)[kind]
		}
	}
	return n
}

func (s *Static) freeBytes(cells map[int]*nodeState, m topology.Mask, kind v1.ResourceName) uint64 {
	return sumMemory(cells, m, kind, func(c *nodeState) map[v1.ResourceName]uint64 { return c.free })
}

// Assign assigns memory to a container and records it in g. It uses the nodes of the hint h, and adds other nodes if
// these have too little free memory. A hint with zero nodes means any node. Assign does nothing if the container already
// has memory or needs none.
func (s *Static) Assign(pod *v1.Pod, ctr *v1.Container, h topology.Hint, g *Assignments) error {
	want := RequestedMemory(pod, ctr)
	if _, has := g.Blocks(pod.UID, ctr.Name); has || len(want) == 0 {
		return nil
	}
	cells := s.nodeStates(g)
	if h.Nodes == 0 {
		found, ok := bestHint(s.computeHints(pod.UID, want, g), 0)
		if !ok {
			return errors.New("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
		}
		if !found.Preferred && h.Preferred {
			return errors.New("[memorymanager] failed to find the default preferred hint")
		}
		h = found
	}
	for kind, n := range want {
		if s.freeBytes(cells, h.Nodes, kind)+g.reusableBytes(pod.UID, kind, h.Nodes) >= n {
			continue
		}
		found, ok := bestHint(s.computeHints(pod.UID, want, g), h.Nodes)
		if !ok {
			return errors.New("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
		}
		if !found.Preferred && h.Preferred {
			return errors.New("[memorymanager] failed to find the extended preferred hint")
		}
		h = found
		break
	}
	if mixesGroups(cells, h.Nodes) {
		return errors.New("[memorymanager] preferred hint violates NUMA node allocation")
	}
	var blocks []Block
	for _, kind := range slices.Sorted(maps.Keys(want)) {
		n := want[kind]
		blocks = append(blocks, Block{Kind: kind, Nodes: h.Nodes, Size: n, Held: n - min(n, g.reusableBytes(pod.UID, kind, h.Nodes))})
	}
	kind, _ := podspec.Find(&pod.Spec, ctr.Name)
	g.Put(pod.UID, ctr.Name, kind == podspec.Init, blocks)
	return nil
}
