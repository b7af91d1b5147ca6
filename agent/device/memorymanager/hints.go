package memorymanager

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/internal/podspec"
)

// Hints returns the sets of NUMA nodes that can provide a container's memory. It returns nil if the container does
// not get memory from particular NUMA nodes.
func (s *Static) Hints(pod *v1.Pod, ctr *v1.Container, g *Assignments) topology.Hints {
	want := RequestedMemory(pod, ctr)
	if len(want) == 0 {
		return nil
	}
	if blocks, has := g.Blocks(pod.UID, ctr.Name); has {
		return keptHints(blocks)
	}
	return s.computeHints(pod.UID, want, g)
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
	return s.computeHints(pod.UID, want, g)
}

func keptHints(blocks []Block) topology.Hints {
	out := topology.Hints{}
	for _, b := range blocks {
		out[string(b.Kind)] = []topology.Hint{{Nodes: b.Nodes, Preferred: true}}
	}
	return out
}

func (s *Static) computeHints(uid types.UID, want map[v1.ResourceName]uint64, g *Assignments) topology.Hints {
	cells := s.nodeStates(g)
	minNodes := len(s.ids)
	var fit []topology.Hint
	topology.EachMask(s.ids, func(m topology.Mask) {
		for kind, n := range want {
			if sumMemory(cells, m, kind, func(c *nodeState) map[v1.ResourceName]uint64 { return c.total }) < n {
				return
			}
		}
		minNodes = min(minNodes, m.Count())
		if m.Count() == 1 && cells[m.IDs()[0]].group.Count() > 1 || mixesGroups(cells, m) {
			return
		}
		for kind, n := range want {
			if s.freeBytes(cells, m, kind)+g.reusableBytes(uid, kind, m) < n {
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

// mixesGroups reports whether a node in m already belongs to a group whose nodes are not exactly the nodes in m.
func mixesGroups(cells map[int]*nodeState, m topology.Mask) bool {
	if m.Count() == 1 {
		return false
	}
	return slices.ContainsFunc(m.IDs(), func(id int) bool { c := cells[id]; return c != nil && c.users > 0 && c.group != m })
}

// bestHint returns the best of the hints that include all the given nodes.
func bestHint(hints topology.Hints, with topology.Mask) (out topology.Hint, ok bool) {
	for _, row := range hints { // all kinds have the same hints
		for _, h := range row {
			if h.Nodes&with != with {
				continue
			}
			if !ok || h.Preferred && !out.Preferred || h.Preferred == out.Preferred && h.Nodes.IsNarrower(out.Nodes) {
				out, ok = h, true
			}
		}
		break
	}
	return out, ok
}
