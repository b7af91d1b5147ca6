package devicemanager

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/internal/podspec"
)

// Hints returns the sets of NUMA nodes that can provide a container's devices, by resource. The list is nil for a
// resource whose devices have no NUMA nodes.
func (g *PodAllocation) Hints(ctr *v1.Container) topology.Hints {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	out := topology.Hints{}
	for _, w := range g.requests {
		if w.container == ctr.Name {
			out[w.resource] = g.computeHints(w.resource, w.count, g.grantedIDs(w.key))
		}
	}
	return out
}

// PodHints returns the hints for all containers of the pod together.
func (g *PodAllocation) PodHints() topology.Hints {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	sidecars, peak, main, ids := map[string]int{}, map[string]int{}, map[string]int{}, map[string][]string{}
	for _, w := range g.requests {
		switch w.kind {
		case podspec.Sidecar:
			sidecars[w.resource] += w.count
		case podspec.Init:
			peak[w.resource] = max(peak[w.resource], sidecars[w.resource]+w.count)
		case podspec.Main:
			main[w.resource] += w.count
		}
		ids[w.resource] = append(ids[w.resource], g.grantedIDs(w.key)...)
	}
	out := topology.Hints{}
	for name, ids := range ids {
		slices.Sort(ids)
		out[name] = g.computeHints(name, max(peak[name], sidecars[name]+main[name]), slices.Compact(ids))
	}
	return out
}

// grantedIDs lists the devices that a container already has. The caller holds mu.
func (g *PodAllocation) grantedIDs(k key) []string {
	if got := g.m.grants[g.pod.UID][k]; got != nil {
		return got.IDs
	}
	return nil
}

// computeHints returns the hints for a number of devices of one resource. The caller holds mu.
func (g *PodAllocation) computeHints(name string, count int, has []string) []topology.Hint {
	m := g.m
	if m.resources[name] == nil || !m.hasNUMA(name) {
		return nil
	}
	reused, free := has, []string(nil)
	if len(has) == 0 {
		reused, free = m.availableDevices(name, pickInput{spare: g.spare[name]})
	}
	out := []topology.Hint{}
	if len(reused)+len(free) < count {
		return out
	}
	all := m.resources[name].devices
	var ids []int
	for _, d := range all {
		ids = append(ids, nodesOf(d).IDs()...)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	minNodes := len(ids)
	topology.EachMask(ids, func(at topology.Mask) {
		total, matching := 0, 0
		for _, d := range all {
			if nodesOf(d)&at != 0 {
				total++
			}
		}
		if total >= count {
			minNodes = min(minNodes, at.Count())
		}
		for _, id := range reused {
			if near := nodesOf(all[id]); near == 0 {
				continue
			} else if near&at == 0 {
				return
			}
			matching++
		}
		for _, id := range free {
			if nodesOf(all[id])&at != 0 {
				matching++
			}
		}
		if matching >= count {
			out = append(out, topology.Hint{Nodes: at})
		}
	})
	for i := range out {
		out[i].Preferred = out[i].Nodes.Count() == minNodes
	}
	return out
}

// nodesOf returns the NUMA nodes of a device, or zero if it has none.
func nodesOf(d Device) (m topology.Mask) {
	for _, id := range d.NUMA {
		if id >= 0 && id < 1<<10 {
			m |= topology.MaskOf(int(id))
		}
	}
	return m
}

// hasNUMA reports whether any device of a resource has NUMA nodes. The caller holds mu.
func (m *Manager) hasNUMA(name string) bool {
	for _, d := range m.resources[name].devices {
		if nodesOf(d) != 0 {
			return true
		}
	}
	return false
}

// availableNear is like availableDevices, but prefers devices of the given NUMA nodes. Zero means any node. It returns
// the devices that must be selected, and the devices from which to select the rest. If the given NUMA nodes have more
// free devices than needed, the rest is selected only from their devices. Otherwise all free devices of the given NUMA
// nodes must be selected, and the rest is selected from the other free devices. The caller holds mu.
func (m *Manager) availableNear(w deviceRequest, in pickInput) (must, free []string) {
	must, free = m.availableDevices(w.resource, in)
	if in.at == 0 || !m.hasNUMA(w.resource) || len(must) >= w.count {
		return must, free
	}
	var here, elsewhere, anywhere []string
	for _, id := range free {
		switch near := nodesOf(m.resources[w.resource].devices[id]); {
		case near == 0:
			anywhere = append(anywhere, id)
		case near&in.at != 0:
			here = append(here, id)
		default:
			elsewhere = append(elsewhere, id)
		}
	}
	if w.count-len(must) < len(here) {
		return must, here
	}
	return slices.Concat(must, here), slices.Concat(elsewhere, anywhere)
}
