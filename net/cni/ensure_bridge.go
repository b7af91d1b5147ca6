package cni

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/ipam"
)

// ensuredBridge describes the bridge when it was last complete.
type ensuredBridge struct {
	link netlink.Link
	at   time.Time
}

// ensureFresh is the minimum time between two checks of the bridge while pods start. The limit saves time, because each call takes longer
// the more pods the node has.
const ensureFresh = 5 * time.Second

// hasUnusedAddress reports whether the bridge still has an address in a former pod CIDR although no pod uses that CIDR any more.
func (n *Network) hasUnusedAddress() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addresses != nil && slices.ContainsFunc(n.former, func(p netip.Prefix) bool { return !n.addresses.UsesPrefix(p.Masked()) })
}

// ensureRecent returns the bridge. The bridge is checked and repaired if the last successful check is older than ensureFresh, or if the
// bridge has changed.
func (n *Network) ensureRecent() (netlink.Link, error) {
	n.mu.Lock()
	found := n.ensured
	n.mu.Unlock()
	if age := time.Since(found.at); age >= 0 && age < ensureFresh {
		if up, err := bridge.IsUp(n.cfg.Host, found.link); up && err == nil {
			return found.link, nil
		}
	}
	return n.ensureBridge()
}

// ensureBridge creates or repairs the objects that pods share, and returns the bridge.
func (n *Network) ensureBridge() (netlink.Link, error) { return n.ensureWith(false) }

// ensureWith creates or repairs the objects that pods share, and returns the bridge. It can also check the bridge's routes.
func (n *Network) ensureWith(routes bool) (netlink.Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ipv4, ipv6 := n.bridgeConfig()
	c.Routes = routes
	former := slices.Clone(c.Addresses[len(n.cidrs):])
	c.Foreign = func(p netip.Prefix) bool { // p is an address in a former pod CIDR
		if n.addresses != nil && !n.addresses.UsesPrefix(p.Masked()) {
			return true
		}
		former = append(former, p)
		return false
	}
	n.ensured = ensuredBridge{}
	if !n.installed {
		n.installed = true // record it even if a later step fails
		n.tracker.wakeLoop()
	}
	br, err := bridge.Ensure(n.cfg.Host, c)
	if err != nil {
		return nil, err
	}
	n.tracker.index.Store(int64(br.Attrs().Index))
	if err := bridge.Forward(n.cfg.Host, ipv4, ipv6); err != nil {
		return nil, err
	}
	n.former = former
	networks := slices.Clone(n.cidrs)
	for _, p := range former {
		networks = append(networks, p.Masked())
	}
	n.ports.SetNetworks(networks)
	if err := n.ports.Repair(); err != nil {
		return nil, err
	}
	n.ensured = ensuredBridge{br, time.Now()}
	return br, nil
}

// findConflict checks whether an existing interface of the node conflicts with the bridge. It returns the error that would prevent the
// creation of the bridge. It changes nothing.
func (n *Network) findConflict() error {
	n.mu.Lock()
	c, _, _ := n.bridgeConfig()
	n.mu.Unlock()
	return bridge.FindObstacle(n.cfg.Host, c)
}

// bridgeConfig returns the configuration and the IP families of the bridge. The addresses in pod CIDRs come first, followed by the
// addresses in former pod CIDRs that pods still use. The caller holds mu.
func (n *Network) bridgeConfig() (c bridge.Config, ipv4, ipv6 bool) {
	c = bridge.Config{Name: n.cfg.Bridge, Exclusive: true}
	for _, p := range n.cidrs {
		c.Addresses = append(c.Addresses, netip.PrefixFrom(ipam.Gateway(p), p.Bits()))
		ipv4, ipv6 = ipv4 || p.Addr().Is4(), ipv6 || p.Addr().Is6()
	}
	for _, p := range n.former {
		if n.addresses != nil && n.addresses.UsesPrefix(p.Masked()) && !slices.Contains(c.Addresses, p) {
			c.Addresses = append(c.Addresses, p)
		}
	}
	return c, ipv4, ipv6
}
