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
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/ipam"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/nft"
)

// lostAfter is how often in a row a port's repair may fail before its sandbox is replaced.
const lostAfter = 3

// mostNamed bounds the items that one event names.
const mostNamed = 3

// A pass looks at parts of the built-in network and repairs what is damaged.
type pass struct {
	n     *Network
	now   time.Time
	asked bool      // somebody waits for the answer: what failed is tried again
	wake  time.Time // when an item that was held back is due; zero: none was
	again dirt      // the parts of those items
	fixed []item
}

// mend looks at the parts and repairs them. It returns when to come again, and for which
// parts, and why the network does not work now. Without the built-in network on the node
// it does nothing. Where somebody asked for it, what failed before is tried at once.
func (n *Network) mend(what dirt, asked bool) (wake time.Time, again dirt, err error) {
	k := n.keep
	k.passing.Lock()
	defer k.passing.Unlock()
	if p := n.now(); !p.laid || p.moved {
		return time.Time{}, 0, nil
	}
	if what&dirtSysctls != 0 {
		right, err := n.sysctlsRight()
		if !right || err != nil {
			what |= dirtTable | dirtBridge
		}
	}
	p := &pass{n: n, now: time.Now(), asked: asked}
	k.contest.forget(p.now)
	for _, part := range []struct {
		is   dirt
		mend func(dirt) error
	}{{dirtTable, p.table}, {dirtBridge | dirtRoutes, p.bridge}, {dirtPorts, p.ports}, {dirtFirewall, p.firewall}} {
		if what&part.is != 0 {
			k.errs[part.is] = part.mend(what)
			p.unseen(part.is)
		}
	}
	p.tell()
	contested := k.contest.contested()
	k.mu.Lock()
	k.contested = contested
	k.mu.Unlock()
	for _, part := range slices.Sorted(maps.Keys(k.errs)) {
		err = errors.Join(err, k.errs[part])
	}
	return p.wake, p.again, err
}

// failing are the parts that the last pass could not repair.
func (k *keeper) failing() (parts dirt) {
	k.passing.Lock()
	defer k.passing.Unlock()
	for part, err := range k.errs {
		if err != nil {
			parts |= part
		}
	}
	return parts
}

// held reports whether an item must wait, and notes when its part is due.
func (p *pass) held(i item, part dirt) bool {
	until, held := p.n.keep.contest.held(i, p.now)
	if held && p.asked && p.n.keep.contest.failures(i) > 0 {
		return false
	}
	if held {
		p.later(until, part)
	}
	return held
}

func (p *pass) later(at time.Time, part dirt) {
	if p.again |= part; p.wake.IsZero() || at.Before(p.wake) {
		p.wake = at
	}
}

// unseen has a part looked at again that could not be: the notice that it was for has passed.
func (p *pass) unseen(part dirt) {
	k := p.n.keep
	if k.errs[part] == nil || p.again&part != 0 {
		delete(k.failed, part)
		return
	}
	k.failed[part]++
	p.later(p.now.Add(pause(k.failed[part])), part)
}

// note counts the repair of an item that err ended.
func (p *pass) note(i item, part dirt, err error) {
	k := p.n.keep
	tell := k.contest.repaired(i, err != nil, p.now)
	switch {
	case err != nil:
		if until, held := k.contest.held(i, p.now); held {
			p.later(until, part)
		}
		p.n.cfg.Log.Warn("the pod network cannot be repaired", "what", i.String(), "error", err)
		if tell {
			p.n.tell("PodNetworkNotRepaired", fmt.Sprintf("The %s of the pod network is missing or changed and cannot be repaired: %v", i, err))
		}
		return
	case tell:
		p.n.tell("PodNetworkContested", fmt.Sprintf("Another program removes or changes the %s of the pod network again and again; it is repaired at growing intervals of up to %s", i, longestPause))
	}
	p.fixed = append(p.fixed, i)
	k.count(i, p.now)
	if p.n.cfg.Repaired != nil {
		p.n.cfg.Repaired(i.kind)
	}
}

// tell reports what the pass has repaired.
func (p *pass) tell() {
	if len(p.fixed) == 0 {
		return
	}
	var names []string
	for _, i := range p.fixed[:min(len(p.fixed), mostNamed)] {
		names = append(names, i.String())
	}
	text := strings.Join(names, ", ")
	if more := len(p.fixed) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	p.n.cfg.Log.Warn("the pod network was damaged from outside and is repaired", "what", text)
	p.n.tell("PodNetworkRepaired", "The pod network was damaged from outside and is repaired: "+text)
}

func (n *Network) tell(reason, message string) {
	if n.cfg.Tell != nil {
		n.cfg.Tell(true, reason, message)
	}
}

// table comes first: the rule that keeps pods from the node's loopback is in it.
func (p *pass) table(dirt) error {
	n := p.n
	n.all.RLock()
	defer n.all.RUnlock()
	table, local, err := n.ports.Damage()
	if err != nil || !table && !local {
		return err
	}
	i := item{itemTable, tableName}
	if !table {
		i = item{bridge.FaultSysctl, "net.ipv4.conf." + n.cfg.Bridge + ".route_localnet"}
	}
	if p.held(i, dirtTable) {
		err = cmp.Or(n.keep.errs[dirtTable], fmt.Errorf("the %s of the pod network is damaged", i))
	} else {
		err = n.ports.Repair()
		p.note(i, dirtTable, err)
	}
	if err != nil {
		err = errors.Join(err, n.ports.Unguarded())
	}
	return err
}

// bridge looks at the bridge, its addresses, routes and sysctls.
func (p *pass) bridge(what dirt) error {
	n := p.n
	n.all.RLock()
	defer n.all.RUnlock()
	n.mu.Lock()
	c, _, _ := n.bridge()
	n.mu.Unlock()
	c.Routes = what&dirtRoutes != 0
	faults, err := bridge.Damage(n.cfg.Host, c)
	if err != nil {
		return err
	}
	due := false
	for _, f := range faults {
		due = !p.held(item{f.Kind, f.Name}, what&(dirtBridge|dirtRoutes)) || due
	}
	if !due {
		if len(faults) > 0 {
			return cmp.Or(n.keep.errs[dirtBridge|dirtRoutes], fmt.Errorf("the %s of the pod network is damaged", item{faults[0].Kind, faults[0].Name}))
		}
		return nil
	}
	_, err = n.ensureWith(c.Routes)
	for _, f := range faults {
		p.note(item{f.Kind, f.Name}, what&(dirtBridge|dirtRoutes), err)
	}
	return err
}

// ports looks at the ports of all sandboxes.
func (p *pass) ports(dirt) error {
	n := p.n
	if n.cfg.Hold {
		return nil
	}
	ends := n.keep.portsNow()
	n.all.RLock()
	out, err := bridge.Unplugged(n.cfg.Host, n.cfg.Bridge, slices.Sorted(maps.Keys(ends)))
	n.all.RUnlock()
	if err != nil {
		if bridge.NotFound(err) { // its own repair failed or waits, which tells of it
			p.later(p.now.Add(firstPause), dirtPorts)
			return nil
		}
		return err
	}
	for _, end := range out {
		i := item{itemPort, ends[end].title()}
		if p.held(i, dirtPorts) {
			continue
		}
		done, err := n.replug(ends[end])
		if !done {
			continue
		}
		p.note(i, dirtPorts, err)
		if err != nil && (errors.Is(err, errNamespaceGone) || n.keep.contest.failures(i) >= lostAfter) {
			n.lose(ends[end], err)
		}
	}
	return nil
}

// errNamespaceGone is that a sandbox has no network namespace to plug in.
var errNamespaceGone = errors.New("the network namespace of the sandbox is gone")

// replug connects a sandbox with the bridge again, with the same addresses. It reports
// false for one that is being set up or torn down.
func (n *Network) replug(w wire) (done bool, err error) {
	n.busy.Lock(w.id)
	defer n.busy.Unlock(w.id)
	n.all.RLock()
	defer n.all.RUnlock()
	if !n.keep.has(w.id) {
		return false, nil
	}
	addresses, err := n.leases(context.Background())
	if err != nil {
		return true, err
	}
	addrs := n.sorted(addresses.Leases()[w.id])
	br, err := bridge.Find(n.cfg.Host, n.cfg.Bridge)
	if err != nil {
		return true, err
	}
	port, err := n.port(br, w.id, addrs)
	if err != nil {
		return true, err
	}
	pod := netns.At(w.path)
	f, err := pod.Open()
	if err != nil {
		return true, fmt.Errorf("%w: %w", errNamespaceGone, err)
	}
	f.Close()
	if err = bridge.Replug(n.cfg.Host, pod, port); errors.Is(err, fs.ErrNotExist) {
		err = attach(n.cfg.Host, pod, port)
	}
	return true, err
}

// sorted puts addresses in the order of their pod CIDRs, as Setup has them: the hardware
// address follows from the first one.
func (n *Network) sorted(addrs []netip.Addr) []netip.Addr {
	n.mu.Lock()
	networks := slices.Concat(n.cidrs, n.former)
	n.mu.Unlock()
	rank := func(a netip.Addr) int {
		return slices.IndexFunc(networks, func(p netip.Prefix) bool { return p.Masked().Contains(a) })
	}
	return slices.SortedFunc(slices.Values(addrs), func(a, b netip.Addr) int { return rank(a) - rank(b) })
}

// port describes the connection of a sandbox.
func (n *Network) port(br netlink.Link, id string, addrs []netip.Addr) (bridge.Port, error) {
	if len(addrs) == 0 {
		return bridge.Port{}, errors.New("no address is kept for it")
	}
	port := bridge.Port{Bridge: br, Host: vethName(id), Interface: Interface, MAC: bridge.MAC(addrs[0]), MTU: br.Attrs().MTU, Hairpin: n.cfg.Hairpin}
	for _, a := range addrs {
		network, ok := n.networkOf(a)
		if !ok {
			return bridge.Port{}, fmt.Errorf("address %s is in no network of the node", a)
		}
		port.Addresses = append(port.Addresses, netip.PrefixFrom(a, network.Bits()))
		everywhere, _ := unspecified(a).Prefix(0)
		port.Routes = append(port.Routes, bridge.Route{Dst: everywhere, Gateway: ipam.Gateway(network)})
	}
	return port, nil
}

// lose has a sandbox replaced by plan.
func (n *Network) lose(w wire, why error) {
	n.keep.lose(w.id)
	n.tell("PodNetworkLost", fmt.Sprintf("The %s of the pod network cannot be made anew, so its pod gets a new sandbox: %v", item{itemPort, w.title()}, why))
	if n.cfg.Changed != nil {
		n.cfg.Changed()
	}
}

// firewall lets pods through firewalls that drop what is forwarded.
func (p *pass) firewall(dirt) error {
	for _, chain := range p.n.keep.admittedNow() {
		if p.held(item{itemFirewall, chain}, dirtFirewall) {
			return nil
		}
	}
	again, err := p.n.admit()
	for _, chain := range again {
		p.note(item{itemFirewall, chain}, dirtFirewall, nil)
	}
	return err
}

// admit lets pods through firewalls that drop what is forwarded. It returns the chains
// that had let them through before.
func (n *Network) admit() (again []string, err error) {
	changed, err := nft.Admit(n.cfg.Host, n.cfg.Bridge)
	for _, chain := range changed {
		if n.keep.admit(chain) {
			n.cfg.Log.Info("let pods through a firewall that drops what is forwarded", "chain", chain)
		} else {
			again = append(again, chain)
		}
	}
	return again, err
}

// sysctlsRight compares the sysctls of which the kernel reports no change.
func (n *Network) sysctlsRight() (bool, error) {
	n.mu.Lock()
	c, _, _ := n.bridge()
	n.mu.Unlock()
	differing, err := n.cfg.Host.Differing(append(bridge.Sysctls(c), n.ports.Sysctl())...)
	return len(differing) == 0, err
}
