package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/ipam"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/nft"
)

// lostAfter is the number of consecutive failed repairs of a port after which its sandbox is
// replaced.
const lostAfter = 3

// maxNamed is the maximum number of items that one event names.
const maxNamed = 3

// A repairPass checks parts of the built-in network and repairs damaged ones.
type repairPass struct {
	n              *Network
	now            time.Time
	retry          bool      // failed repairs are retried at once, without their pause
	nextTime       time.Time // the earliest time at which a postponed item is due; zero if no item is postponed
	postponedParts partSet   // the parts that contain postponed items
	fixed          []item
}

// repairParts checks the given parts and repairs them. It returns the time of the next call and the parts to pass to that call. The error
// is the reason why the network does not work now. If retry is true, failed repairs are repeated at once instead of after their pause.
// While the built-in network is not installed, nothing is checked.
func (n *Network) repairParts(what partSet, retry bool) (wake time.Time, again partSet, err error) {
	k := n.tracker
	k.repairMu.Lock()
	defer k.repairMu.Unlock()
	if p := n.currentPhase(); !p.installed || p.moved {
		return time.Time{}, 0, nil
	}
	if what&partSysctls != 0 {
		right, err := n.sysctlsRight()
		if !right || err != nil {
			what |= partTable | partBridge
		}
	}
	p := &repairPass{n: n, now: time.Now(), retry: retry}
	k.contest.removeUndamaged(p.now)
	for _, part := range []struct {
		is     partSet
		repair func(partSet) error
	}{{partTable, p.repairTable}, {partBridge | partRoutes, p.repairBridge}, {partPorts | partSuspects, p.repairPorts},
		{partFirewall, p.repairFirewalls}, {partRange, p.checkRange}} {
		if what&part.is != 0 {
			k.errs[part.is] = part.repair(what)
			p.retryUnchecked(part.is)
		}
	}
	p.logRepairs()
	contested := k.contest.pausedItems()
	k.mu.Lock()
	k.contested = contested
	k.mu.Unlock()
	for _, part := range slices.Sorted(maps.Keys(k.errs)) {
		err = errors.Join(err, k.errs[part])
	}
	return p.nextTime, p.postponedParts, err
}

// failedParts returns the parts whose last repair failed.
func (k *tracker) failedParts() (parts partSet) {
	k.repairMu.Lock()
	defer k.repairMu.Unlock()
	for part, err := range k.errs {
		if err != nil {
			parts |= part
		}
	}
	return parts
}

// isHeld reports whether the repair of an item must wait. If it must wait, isHeld schedules a later check of the part.
func (p *repairPass) isHeld(i item, part partSet) bool {
	until, held := p.n.tracker.contest.isHeld(i, p.now)
	if held && p.retry && p.n.tracker.contest.failedRepairs(i) > 0 {
		return false
	}
	if held {
		p.postponePart(until, part)
	}
	return held
}

func (p *repairPass) postponePart(at time.Time, part partSet) {
	p.postponedParts |= part
	if p.nextTime.IsZero() || at.Before(p.nextTime) {
		p.nextTime = at
	}
}

// retryUnchecked schedules another check of a part whose check has failed. This is needed because the kernel does not repeat its notice.
func (p *repairPass) retryUnchecked(part partSet) {
	k := p.n.tracker
	if k.errs[part] == nil || p.postponedParts&part != 0 {
		delete(k.failed, part)
		return
	}
	k.failed[part]++
	p.postponePart(p.now.Add(pauseLength(k.failed[part])), part)
}

// recordRepair records that an item was repaired, or that the repair has failed with an error.
func (p *repairPass) recordRepair(i item, part partSet, err error) {
	k := p.n.tracker
	tell := k.contest.recordRepair(i, err != nil, p.now)
	switch {
	case err != nil:
		if until, held := k.contest.isHeld(i, p.now); held {
			p.postponePart(until, part)
		}
		p.n.cfg.Log.Warn("cannot repair the pod network", "what", i.String(), "error", err)
		if tell {
			p.n.recordEvent("PodNetworkNotRepaired", fmt.Sprintf(
				"The %s of the pod network is missing or changed and cannot be repaired: %v", i, err))
		}
		return
	case tell:
		p.n.recordEvent("PodNetworkContested", fmt.Sprintf("Another program repeatedly removes or changes the %s of the pod network; "+
			"it is repaired at growing intervals of up to %s", i, longestPause))
	}
	p.fixed = append(p.fixed, i)
	k.countRepair(i, p.now)
	if p.n.cfg.OnRepair != nil {
		p.n.cfg.OnRepair(i.kind)
	}
}

// logRepairs logs the repaired items.
func (p *repairPass) logRepairs() {
	if len(p.fixed) == 0 {
		return
	}
	var names []string
	for _, i := range p.fixed[:min(len(p.fixed), maxNamed)] {
		names = append(names, i.String())
	}
	text := strings.Join(names, ", ")
	if more := len(p.fixed) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	p.n.cfg.Log.Warn("repaired the pod network, which another program had damaged", "what", text)
	p.n.recordEvent("PodNetworkRepaired", "The pod network was damaged by another program and has been repaired: "+text)
}

func (n *Network) recordEvent(reason, message string) {
	if n.cfg.RecordEvent != nil {
		n.cfg.RecordEvent(true, reason, message)
	}
}

// repairTable checks and repairs the nftables table and route_localnet. It runs before the other checks, because the table contains a rule
// that drops packets from pods to the node's loopback addresses.
func (p *repairPass) repairTable(partSet) error {
	n := p.n
	n.operations.RLock()
	defer n.operations.RUnlock()
	table, local, err := n.ports.FindDamage()
	if err != nil || !table && !local {
		return err
	}
	i := item{itemTable, tableName}
	if !table {
		i = item{bridge.FaultSysctl, "net.ipv4.conf." + n.cfg.Bridge + ".route_localnet"}
	}
	if p.isHeld(i, partTable) {
		err = cmp.Or(n.tracker.errs[partTable], fmt.Errorf("the %s of the pod network is damaged", i))
	} else {
		err = n.ports.Repair()
		p.recordRepair(i, partTable, err)
	}
	if err != nil {
		err = errors.Join(err, n.ports.DisableLocalnet())
	}
	return err
}

// repairBridge checks and repairs the bridge, its addresses, routes and sysctls.
func (p *repairPass) repairBridge(what partSet) error {
	n := p.n
	n.operations.RLock()
	defer n.operations.RUnlock()
	n.mu.Lock()
	c, _, _ := n.bridgeConfig()
	n.mu.Unlock()
	c.Routes = what&partRoutes != 0
	faults, err := bridge.FindDamage(n.cfg.Host, c)
	if err != nil {
		return err
	}
	due := false
	for _, f := range faults {
		due = !p.isHeld(item{f.Kind, f.Name}, what&(partBridge|partRoutes)) || due
	}
	if !due {
		if len(faults) > 0 {
			damaged := item{faults[0].Kind, faults[0].Name}
			return cmp.Or(n.tracker.errs[partBridge|partRoutes], fmt.Errorf("the %s of the pod network is damaged", damaged))
		}
		return nil
	}
	_, err = n.ensureWith(c.Routes)
	for _, f := range faults {
		p.recordRepair(item{f.Kind, f.Name}, what&(partBridge|partRoutes), err)
	}
	return err
}

// repairPorts checks and repairs the ports of sandboxes: only the suspects, or all of them.
func (p *repairPass) repairPorts(what partSet) error {
	n := p.n
	if n.cfg.Hold {
		return nil
	}
	ends := n.tracker.takeSuspects(what&partPorts != 0)
	n.operations.RLock()
	out, err := bridge.MissingPorts(n.cfg.Host, n.cfg.Bridge, slices.Sorted(maps.Keys(ends)))
	n.operations.RUnlock()
	if err != nil {
		if bridge.NotFound(err) { // the repair of the bridge has already reported the failed or postponed repair
			p.postponePart(p.now.Add(firstPause), partPorts)
			return nil
		}
		return err
	}
	for _, end := range out {
		i := item{itemPort, ends[end].describe()}
		if p.isHeld(i, partPorts) {
			n.tracker.addSuspect(end) // Ready does not wait until the check is due
			continue
		}
		done, err := n.reconnect(ends[end])
		if !done {
			continue
		}
		p.recordRepair(i, partPorts, err)
		if err != nil && (errors.Is(err, errNamespaceGone) || n.tracker.contest.failedRepairs(i) >= lostAfter) {
			n.markLost(ends[end], err)
		}
	}
	return nil
}

// errNamespaceGone is the error for a sandbox whose network namespace does not exist.
var errNamespaceGone = errors.New("the network namespace of the sandbox is gone")

// reconnect connects a sandbox to the bridge again, with the same addresses. While the sandbox is being set up or torn down, it does
// nothing and returns false.
func (n *Network) reconnect(w vethPair) (done bool, err error) {
	n.sandboxLocks.Lock(w.id)
	defer n.sandboxLocks.Unlock(w.id)
	n.operations.RLock()
	defer n.operations.RUnlock()
	if !n.tracker.hasSandbox(w.id) {
		return false, nil
	}
	addresses, err := n.loadLeases(context.Background())
	if err != nil {
		return true, err
	}
	addrs := n.sortByCIDR(addresses.Leases()[w.id])
	br, err := bridge.Find(n.cfg.Host, n.cfg.Bridge)
	if err != nil {
		return true, err
	}
	port, err := n.portOf(br, w.id, addrs)
	if err != nil {
		return true, err
	}
	pod := netns.At(w.path)
	f, err := pod.Open()
	if err != nil {
		return true, fmt.Errorf("%w: %w", errNamespaceGone, err)
	}
	f.Close()
	err = bridge.ReattachPort(n.cfg.Host, pod, port)
	if errors.Is(err, fs.ErrNotExist) {
		err = attachPort(n.cfg.Host, pod, port)
	}
	return true, err
}

// sortByCIDR sorts addresses in the order of their pod CIDRs, which is also the order in Setup. The order matters because the first address
// determines the hardware address.
func (n *Network) sortByCIDR(addrs []netip.Addr) []netip.Addr {
	n.mu.Lock()
	networks := slices.Concat(n.cidrs, n.former)
	n.mu.Unlock()
	rank := func(a netip.Addr) int {
		return slices.IndexFunc(networks, func(p netip.Prefix) bool { return p.Masked().Contains(a) })
	}
	addrs = slices.Clone(addrs)
	sort.Slice(addrs, func(i, j int) bool { return rank(addrs[i]) < rank(addrs[j]) })
	return addrs
}

// portOf returns the bridge port of a sandbox.
func (n *Network) portOf(br netlink.Link, id string, addrs []netip.Addr) (bridge.Port, error) {
	if len(addrs) == 0 {
		return bridge.Port{}, errors.New("it has no leased address")
	}
	port := bridge.Port{
		Bridge: br, Host: vethName(id), Interface: Interface, MAC: bridge.MAC(addrs[0]),
		MTU: br.Attrs().MTU, Hairpin: n.cfg.Hairpin,
	}
	for _, a := range addrs {
		network, ok := n.networkOf(a)
		if !ok {
			return bridge.Port{}, fmt.Errorf("address %s is in no network of the node", a)
		}
		port.Addresses = append(port.Addresses, netip.PrefixFrom(a, network.Bits()))
		everywhere, _ := unspecifiedAddr(a).Prefix(0)
		port.Routes = append(port.Routes, bridge.Route{Dst: everywhere, Gateway: ipam.Gateway(network)})
	}
	return port, nil
}

// markLost marks a sandbox as stale, so that the plan replaces it.
func (n *Network) markLost(w vethPair, why error) {
	n.tracker.markLost(w.id)
	n.recordEvent("PodNetworkLost", fmt.Sprintf("The %s of the pod network cannot be recreated, so its pod gets a new sandbox: %v",
		item{itemPort, w.describe()}, why))
	if n.cfg.Changed != nil {
		n.cfg.Changed()
	}
}

// checkRange looks for another network of the machine that overlaps with the pods' networks. Such a network may come at any time, for
// example by DHCP, after the bridge has got its address, so it must not stay unknown. It is reported by an event and in Repairs. The result
// is an error only if the machine itself may be cut off, and not during a trial: the previous version may not check this, and the network
// is no reason to return to it. The addresses of the other interface are not changed, and neither are the pods. If the check fails, the
// last result remains, and the check is repeated.
func (p *repairPass) checkRange(partSet) error {
	n, k := p.n, p.n.tracker
	before := k.errs[partRange]
	found, err := n.findOverlap()
	if err != nil {
		n.cfg.Log.Debug("cannot compare the pod network with the other networks of this machine; islet retries", "error", err)
		p.postponePart(p.now.Add(checkAgain), partRange)
		return before
	}
	k.mu.Lock()
	changed := found.Text != k.conflict.Text
	k.conflict = found
	k.mu.Unlock()
	if changed && found.Text != "" {
		n.cfg.Log.Warn("the pod network conflicts with another network of this machine", "why", found.Text)
		n.recordEvent("PodNetworkConflict", fmt.Sprintf(
			"Another network of this machine overlaps with the pods' network, and one of them may be unreachable: %s", found.Text))
	}
	if found.Cuts && !n.cfg.Hold {
		err = errors.New(found.Text)
	}
	if (err == nil) != (before == nil) && n.cfg.Changed != nil {
		n.cfg.Changed()
	}
	return err
}

// checkAgain is the time after which a failed check of the networks is repeated.
const checkAgain = 10 * time.Second

// findOverlap looks for another network that overlaps with the present pod CIDRs. It ignores former pod CIDRs, because their addresses are
// being removed. The pod CIDRs cannot change during the call.
func (n *Network) findOverlap() (bridge.Conflict, error) {
	n.operations.RLock()
	defer n.operations.RUnlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	c, _, _ := n.bridgeConfig()
	c.Addresses = c.Addresses[:len(n.cidrs)]
	return bridge.FindConflict(n.cfg.Host, c)
}

// repairFirewalls checks the firewalls of the node that drop forwarded packets, and adds missing rules that accept the packets of pods.
func (p *repairPass) repairFirewalls(partSet) error {
	for _, chain := range p.n.tracker.admittedChains() {
		if p.isHeld(item{itemFirewall, chain}, partFirewall) {
			return nil
		}
	}
	again, err := p.n.allowForwarding()
	for _, chain := range again {
		p.recordRepair(item{itemFirewall, chain}, partFirewall, nil)
	}
	return err
}

// allowForwarding adds rules that accept the packets of pods to firewalls that drop forwarded packets. It returns the chains to which it
// had added the rules before. Another program has removed the rules from these chains.
func (n *Network) allowForwarding() (again []string, err error) {
	changed, err := nft.AllowForwarding(n.cfg.Host, n.cfg.Bridge)
	for _, chain := range changed {
		if n.tracker.recordChain(chain) {
			n.cfg.Log.Info("added rules for pods to a firewall that drops forwarded packets", "chain", chain)
		} else {
			again = append(again, chain)
		}
	}
	return again, err
}

// sysctlsRight reports whether the sysctls whose changes the kernel does not report have the right values.
func (n *Network) sysctlsRight() (bool, error) {
	n.mu.Lock()
	c, _, _ := n.bridgeConfig()
	n.mu.Unlock()
	differing, err := n.cfg.Host.DifferingSysctls(append(bridge.Sysctls(c), n.ports.Sysctl())...)
	return len(differing) == 0, err
}
