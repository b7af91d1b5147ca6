package cni

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/ipam"
)

// foundation is what the last ensure left behind: the bridge, and when that was.
type foundation struct {
	index int
	at    time.Time
}

// ensureFresh is for how long ensure is not repeated while pods start: what it looks
// at costs more the more pods there are.
const ensureFresh = 5 * time.Second

// Ready returns nil, or why pods cannot get a network. While the built-in network is not on
// the node it only looks. Later it compares the sysctls of whose changes the kernel does not
// tell, and tries again what could not be repaired; where the kernel is not listened to, it
// compares and repairs all.
func (n *Network) Ready() error {
	n.all.RLock()
	list, err := n.look()
	if list == nil && err == nil && !n.now().laid {
		err = n.obstacle()
		n.all.RUnlock()
		return err
	}
	n.all.RUnlock()
	if list != nil || err != nil {
		return err
	}
	what := dirtSysctls | n.keep.failing()
	if !n.keep.listens.Load() {
		what = dirtAll
	}
	if _, _, err := n.mend(what, true); err != nil {
		return err
	}
	if n.outlived() {
		n.all.RLock()
		defer n.all.RUnlock()
		_, err = n.ensure()
	}
	return err
}

// outlived reports whether the node has an address of a former pod CIDR that no pod uses.
func (n *Network) outlived() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addresses != nil && slices.ContainsFunc(n.former, func(p netip.Prefix) bool { return !n.addresses.Uses(p.Masked()) })
}

// ensured is ensure where that was not done just now, or the bridge is another one.
func (n *Network) ensured() (netlink.Link, error) {
	n.mu.Lock()
	found := n.found
	n.mu.Unlock()
	if age := time.Since(found.at); age >= 0 && age < ensureFresh {
		br, err := bridge.Find(n.cfg.Host, n.cfg.Bridge)
		if err == nil && br.Attrs().Index == found.index && br.Attrs().Flags&net.FlagUp != 0 {
			return br, nil
		}
	}
	return n.ensure()
}

// ensure makes sure of all that is common to pods, and returns the bridge.
func (n *Network) ensure() (netlink.Link, error) { return n.ensureWith(false) }

// ensureWith is ensure that also compares the bridge's routes, if asked to.
func (n *Network) ensureWith(routes bool) (netlink.Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ipv4, ipv6 := n.bridge()
	c.Routes = routes
	former := slices.Clone(c.Addresses[len(n.cidrs):])
	c.Foreign = func(p netip.Prefix) bool { // of a former pod CIDR
		if n.addresses != nil && !n.addresses.Uses(p.Masked()) {
			return true
		}
		former = append(former, p)
		return false
	}
	if n.found = (foundation{}); !n.laid {
		n.laid = true // also when it fails half way
		n.keep.poke()
	}
	br, err := bridge.Ensure(n.cfg.Host, c)
	if err != nil {
		return nil, err
	}
	n.keep.index.Store(int64(br.Attrs().Index))
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
	n.found = foundation{br.Attrs().Index, time.Now()}
	return br, nil
}

// obstacle returns what of the node would keep ensure from its work.
func (n *Network) obstacle() error {
	n.mu.Lock()
	c, _, _ := n.bridge()
	n.mu.Unlock()
	return bridge.Obstacle(n.cfg.Host, c)
}

// bridge describes the bridge, and which families it has. Behind the addresses of the pod
// CIDRs are those of former ones that pods still use. The caller holds mu.
func (n *Network) bridge() (c bridge.Config, ipv4, ipv6 bool) {
	c = bridge.Config{Name: n.cfg.Bridge, Exclusive: true}
	for _, p := range n.cidrs {
		c.Addresses = append(c.Addresses, netip.PrefixFrom(ipam.Gateway(p), p.Bits()))
		ipv4, ipv6 = ipv4 || p.Addr().Is4(), ipv6 || p.Addr().Is6()
	}
	for _, p := range n.former {
		if n.addresses != nil && n.addresses.Uses(p.Masked()) && !slices.Contains(c.Addresses, p) {
			c.Addresses = append(c.Addresses, p)
		}
	}
	return c, ipv4, ipv6
}
