package memorymanager

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/podspec"
)

// A Block is memory of one kind that is assigned to a container.
type Block struct {
	Kind  v1.ResourceName `json:"kind"` // memory, or huge pages of one size
	Nodes topology.Mask   `json:"nodes"`
	Size  uint64          `json:"size"` // bytes
	// Held is the part of Size that the container does not reuse from an init container of its pod. An init container
	// ends before the next container starts.
	Held uint64 `json:"held"`
}

// A row contains the blocks of one container.
type row struct {
	uid       types.UID
	container string
	init      bool // an init container ends before the next container starts
	blocks    []Block
}

// Assignments contains the memory of containers, in the order of the assignments.
type Assignments struct{ rows []row }

// Clone returns a copy of the list.
func (g *Assignments) Clone() *Assignments { return &Assignments{slices.Clone(g.rows)} }

// Put adds the memory of a container.
func (g *Assignments) Put(uid types.UID, container string, init bool, blocks []Block) {
	g.rows = append(g.rows, row{uid, container, init, blocks})
}

// Blocks returns the memory of a container. It returns false if the container has none.
func (g *Assignments) Blocks(uid types.UID, container string) ([]Block, bool) {
	for _, r := range g.rows {
		if r.uid == uid && r.container == container {
			return r.blocks, true
		}
	}
	return nil, false
}

// Remove removes the memory of a pod. It reports whether the pod had memory.
func (g *Assignments) Remove(uid types.UID) bool {
	before := len(g.rows)
	g.rows = slices.DeleteFunc(slices.Clone(g.rows), func(r row) bool { return r.uid == uid })
	return len(g.rows) != before
}

// reusable returns the bytes that a container can reuse from init containers of its pod on exactly the nodes in at.
func (g *Assignments) reusable(uid types.UID, kind v1.ResourceName, at topology.Mask) (n uint64) {
	for _, r := range g.rows {
		for _, b := range r.blocks {
			if r.uid != uid || b.Kind != kind || b.Nodes != at {
				continue
			}
			if r.init {
				n = max(n, b.Size)
			} else {
				n -= min(n, b.Size)
			}
		}
	}
	return n
}

// A cell is the state of a NUMA node.
type cell struct {
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

// New returns the policy. Like a kubelet, it fails unless the reservations of all nodes add up
// to the node's reserved memory and huge pages.
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

// cells returns the state of each NUMA node after the assignments in g.
func (s *Static) cells(g *Assignments) map[int]*cell {
	out := map[int]*cell{}
	for _, id := range s.ids {
		out[id] = &cell{total: s.total[id], free: maps.Clone(s.total[id]), group: topology.MaskOf(id)}
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

// Wants returns the memory that a container requests, by kind. It is empty if the container does not get memory from
// particular NUMA nodes.
func Wants(pod *v1.Pod, ctr *v1.Container) map[v1.ResourceName]uint64 {
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
		for name, n := range Wants(pod, ctr) {
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

// Hints returns the sets of NUMA nodes that can provide a container's memory. It returns nil if the container does
// not get memory from particular NUMA nodes.
func (s *Static) Hints(pod *v1.Pod, ctr *v1.Container, g *Assignments) topology.Hints {
	want := Wants(pod, ctr)
	if len(want) == 0 {
		return nil
	}
	if blocks, has := g.Blocks(pod.UID, ctr.Name); has {
		return keptHints(blocks)
	}
	return s.hints(pod.UID, want, g)
}

// PodHints returns the hints for all containers of a pod together.
func (s *Static) PodHints(pod *v1.Pod, g *Assignments) topology.Hints {
	want := podWants(pod)
	if len(want) == 0 {
		return nil
	}
	for _, ctr := range podspec.Containers(&pod.Spec) {
		if blocks, has := g.Blocks(pod.UID, ctr.Name); has {
			return keptHints(blocks)
		}
	}
	return s.hints(pod.UID, want, g)
}

func keptHints(blocks []Block) topology.Hints {
	out := topology.Hints{}
	for _, b := range blocks {
		out[string(b.Kind)] = []topology.Hint{{Nodes: b.Nodes, Preferred: true}}
	}
	return out
}

func (s *Static) hints(uid types.UID, want map[v1.ResourceName]uint64, g *Assignments) topology.Hints {
	cells := s.cells(g)
	minNodes := len(s.ids)
	var fit []topology.Hint
	topology.EachMask(s.ids, func(m topology.Mask) {
		for kind, n := range want {
			if sum(cells, m, kind, func(c *cell) map[v1.ResourceName]uint64 { return c.total }) < n {
				return
			}
		}
		minNodes = min(minNodes, m.Count())
		if m.Count() == 1 && cells[m.IDs()[0]].group.Count() > 1 || mixesGroups(cells, m) {
			return
		}
		for kind, n := range want {
			if s.free(cells, m, kind)+g.reusable(uid, kind, m) < n {
				return
			}
		}
		fit = append(fit, topology.Hint{Nodes: m})
	})
	for i := range fit {
		fit[i].Preferred = fit[i].Nodes.Count() == minNodes
	}
	out := topology.Hints{}
	for kind := range want {
		out[string(kind)] = fit
		if fit == nil {
			out[string(kind)] = []topology.Hint{}
		}
	}
	return out
}

func sum(cells map[int]*cell, m topology.Mask, kind v1.ResourceName, of func(*cell) map[v1.ResourceName]uint64) (n uint64) {
	for _, id := range m.IDs() {
		if c := cells[id]; c != nil {
			n += of(c)[kind]
		}
	}
	return n
}

func (s *Static) free(cells map[int]*cell, m topology.Mask, kind v1.ResourceName) uint64 {
	return sum(cells, m, kind, func(c *cell) map[v1.ResourceName]uint64 { return c.free })
}

// mixesGroups reports whether a node of m already belongs to a group that has other nodes than m.
func mixesGroups(cells map[int]*cell, m topology.Mask) bool {
	if m.Count() == 1 {
		return false
	}
	return slices.ContainsFunc(m.IDs(), func(id int) bool { c := cells[id]; return c != nil && c.users > 0 && c.group != m })
}

// Take assigns memory to a container and records it in g. It uses the nodes of h, and adds nodes if these have too
// little free memory. Zero nodes mean any node. It does nothing if the container already has memory or needs none.
func (s *Static) Take(pod *v1.Pod, ctr *v1.Container, h topology.Hint, g *Assignments) error {
	want := Wants(pod, ctr)
	if _, has := g.Blocks(pod.UID, ctr.Name); has || len(want) == 0 {
		return nil
	}
	cells := s.cells(g)
	if h.Nodes == 0 {
		found, ok := bestHint(s.hints(pod.UID, want, g), 0)
		if !ok {
			return errors.New("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
		}
		if !found.Preferred && h.Preferred {
			return errors.New("[memorymanager] failed to find the default preferred hint")
		}
		h = found
	}
	for kind, n := range want {
		if s.free(cells, h.Nodes, kind)+g.reusable(pod.UID, kind, h.Nodes) >= n {
			continue
		}
		found, ok := bestHint(s.hints(pod.UID, want, g), h.Nodes)
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
		blocks = append(blocks, Block{Kind: kind, Nodes: h.Nodes, Size: n, Held: n - min(n, g.reusable(pod.UID, kind, h.Nodes))})
	}
	kind, _ := podspec.Find(&pod.Spec, ctr.Name)
	g.Put(pod.UID, ctr.Name, kind == podspec.Init, blocks)
	return nil
}

// bestHint returns the best hint whose nodes include the nodes of with.
func bestHint(hints topology.Hints, with topology.Mask) (out topology.Hint, ok bool) {
	for _, row := range hints { // all kinds have the same hints
		for _, h := range row {
			if h.Nodes&with != with {
				continue
			}
			if !ok || h.Preferred && !out.Preferred || h.Preferred == out.Preferred && h.Nodes.Narrower(out.Nodes) {
				out, ok = h, true
			}
		}
		break
	}
	return out, ok
}
