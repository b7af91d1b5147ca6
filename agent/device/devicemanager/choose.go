package devicemanager

import (
	"fmt"
	"slices"
	"strings"

	"github.com/islet-edge/islet/agent/device/topology"
)

// A pickInput determines from which devices of a resource a container's devices are selected.
type pickInput struct {
	spare     map[string]bool // devices that the container can reuse from an init container of its pod
	own       map[string]bool // devices that are reserved for the container, or for later containers of its pod
	preferred []string        // devices to select first
	at        topology.Mask   // NUMA nodes whose devices are selected first; zero means any node
}

// pickInput returns the devices from which the devices of the request with index i can be selected after their reservation.
// The caller holds mu.
func (g *PodAllocation) pickInput(i int) pickInput {
	in := pickInput{spare: map[string]bool{}, own: map[string]bool{}, at: g.requests[i].at}
	earlier := map[string]bool{}
	for j, w := range g.requests {
		if w.resource != g.requests[i].resource {
			continue
		}
		for _, id := range g.grantedIDs(w.key) {
			switch {
			case j < i:
				earlier[id] = true
			case j == i && earlier[id]:
				in.spare[id] = true
			case w.grant != nil && !earlier[id]:
				in.own[id] = true
			}
		}
	}
	return in
}

// chooseDevices replaces reserved devices of the request with index i by devices that the provider prefers, and devices that
// are no longer healthy by others. The replaced devices are reserved for later containers of the pod instead, or become
// free. The caller holds mu.
func (g *PodAllocation) chooseDevices(i int, preferred []string) error {
	w, all := &g.requests[i], g.m.resources[g.requests[i].resource].devices
	unhealthy := func(id string) bool { return !all[id].Healthy }
	if preferred == nil && !slices.ContainsFunc(w.grant.IDs, unhealthy) {
		return nil
	}
	in := g.pickInput(i)
	in.preferred = slices.Concat(preferred, w.grant.IDs)
	ids, err := g.pickDevices(*w, in)
	if err != nil {
		return err
	}
	g.swap(i, g.pairSwaps(i, ids))
	if bad := slices.DeleteFunc(slices.Clone(w.grant.IDs), func(id string) bool { return !unhealthy(id) }); len(bad) > 0 {
		return fmt.Errorf("device %s of %s is no longer healthy", strings.Join(bad, ", "), w.resource)
	}
	return nil
}

// pairSwaps returns pairs of devices to swap, so that the request with index i gets the given devices as far as possible. It
// swaps devices of different NUMA nodes only if no later container with other NUMA nodes has one of them, because the other
// resources of that container are reserved on these nodes. The caller holds mu.
func (g *PodAllocation) pairSwaps(i int, ids []string) map[string]string {
	w := g.requests[i]
	all := g.m.resources[w.resource].devices
	fixed := map[string]bool{}
	for _, later := range g.requests[i+1:] {
		if later.resource == w.resource && later.grant != nil && later.at != w.at {
			addAll(fixed, later.grant.IDs)
		}
	}
	has, wants, pairs := map[string]bool{}, map[string]bool{}, map[string]string{}
	addAll(has, w.grant.IDs)
	addAll(wants, ids)
	byNodes := map[topology.Mask][]string{} // devices to replace
	for _, old := range w.grant.IDs {
		if !wants[old] {
			at := nodesOf(all[old])
			byNodes[at] = append(byNodes[at], old)
		}
	}
	var elsewhere []string
	for _, id := range ids {
		at := nodesOf(all[id])
		switch olds := byNodes[at]; {
		case has[id]:
		case len(olds) > 0:
			pairs[olds[0]], pairs[id], byNodes[at] = id, olds[0], olds[1:]
		case !fixed[id]:
			elsewhere = append(elsewhere, id)
		}
	}
	for _, olds := range byNodes {
		for _, old := range olds {
			if len(elsewhere) > 0 && !fixed[old] {
				pairs[old], pairs[elsewhere[0]], elsewhere = elsewhere[0], old, elsewhere[1:]
			}
		}
	}
	return pairs
}

func addAll(set map[string]bool, ids []string) {
	for _, id := range ids {
		set[id] = true
	}
}

// swap swaps pairs of devices in all reservations from the request with index i on. So each later container still gets as many
// devices, and can still reuse the devices of an init container. The caller holds mu.
func (g *PodAllocation) swap(i int, pairs map[string]string) {
	for _, w := range g.requests[i:] {
		if w.resource != g.requests[i].resource || w.grant == nil {
			continue
		}
		ids := slices.Clone(w.grant.IDs)
		for k, id := range ids {
			if other, is := pairs[id]; is {
				ids[k] = other
			}
		}
		slices.Sort(ids)
		w.grant.IDs = ids
	}
}
