package bridge

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/net/netns"
)

// A Conflict is another network of the machine that overlaps with the network of an existing bridge. It is empty if there is none.
type Conflict struct {
	Text string // describes the other network
	// If Cuts is true, the machine itself may have lost its network: the other network has the bridge's own address, or the machine's
	// default route uses it, or there is no default route. (The kernel rejects a default route whose gateway has the address of the
	// bridge.) If Cuts is false, the two networks share only addresses other than the bridge's.
	Cuts bool
}

// FindConflict looks for another network that overlaps with the network of an existing bridge. Ensure does not look for it once the bridge
// has its addresses. In contrast to Ensure, FindConflict also finds a larger network in which this machine has an address of the pods'
// network, and a default gateway in the pods' network. A network that cuts off the machine precedes others. FindConflict changes nothing,
// and an error says nothing about conflicts.
func FindConflict(ns netns.NS, c Config) (found Conflict, err error) {
	h, err := ns.Netlink()
	if err != nil {
		return Conflict{}, err
	}
	defer h.Close()
	index := 0
	if link, err := h.LinkByName(c.Name); err == nil {
		index = link.Attrs().Index
	} else if !notFound(err) {
		return Conflict{}, fmt.Errorf("bridge %s: %w", c.Name, err)
	}
	all, err := listAddresses(h)
	if err != nil {
		return Conflict{}, err
	}
	for _, want := range c.Addresses {
		ways, err := listDefaultRoutes(h, want.Addr(), index)
		if err != nil {
			return Conflict{}, err
		}
		if other := compareNetworks(h, want, index, all, ways); found.Text == "" || other.Cuts && !found.Cuts {
			found = other
		}
	}
	return found, nil
}

// compareNetworks looks for a conflict with one address of the bridge among the addresses of other links, and the default routes. The
// parameter index is the index of the bridge.
func compareNetworks(h *netlink.Handle, want netip.Prefix, index int, all []netlink.Addr, ways []defaultRoute) (found Conflict) {
	for _, way := range ways {
		if want.Masked().Contains(way.gateway) {
			return Conflict{Cuts: true, Text: fmt.Sprintf("the default gateway %s of interface %s is in the pods' network %s: "+
				"choose another podCIDR", way.gateway, linkName(h, way.link), want.Masked())}
		}
	}
	for _, a := range all {
		p, ok := prefixOf(a.IPNet)
		same := p.Addr() == want.Addr()
		if !ok || a.LinkIndex == index || !same && (p.IsSingleIP() || !want.Masked().Contains(p.Addr())) {
			continue
		}
		cuts := same || len(ways) == 0
		for _, way := range ways {
			cuts = cuts || way.link == a.LinkIndex && p.Bits() >= want.Bits()
		}
		if found.Text == "" || cuts && !found.Cuts {
			found = Conflict{describeHolder(h, a.LinkIndex, p, want), cuts}
		}
	}
	return found
}

// A defaultRoute is a default route through a link. The gateway is invalid if there is none.
type defaultRoute struct {
	link    int
	gateway netip.Addr
}

// listDefaultRoutes returns the default routes of the address's family, except those through the bridge with the given index.
func listDefaultRoutes(h *netlink.Handle, of netip.Addr, index int) (out []defaultRoute, err error) {
	family := netlink.FAMILY_V4
	if of.Is6() {
		family = netlink.FAMILY_V6
	}
	var all []netlink.Route
	if err := netns.Dump(func() (err error) {
		all, err = h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		return err
	}); err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	add := func(link int, gateway net.IP) {
		if link != index && link != 0 {
			g, _ := netip.AddrFromSlice(gateway)
			out = append(out, defaultRoute{link, g.Unmap()})
		}
	}
	for _, r := range all {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones > 0 {
				continue
			}
		}
		if r.Type == unix.RTN_UNICAST {
			add(r.LinkIndex, r.Gw)
			for _, hop := range r.MultiPath {
				add(hop.LinkIndex, hop.Gw)
			}
		}
	}
	return out, nil
}
