package address

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/sorting"
	"github.com/islet-edge/islet/net/netns"
)

// unusableFlags contains the flags of addresses that will be removed or are not ready yet. The flag for temporary IPv6 addresses is not
// included, because the same bit marks secondary addresses in IPv4. It is checked separately.
const unusableFlags = unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

// Find returns at most one address of each family, IPv4 first. The caller passes the result of the previous call. If several addresses have
// the same rank, Find prefers an address of this previous result. It ignores the interfaces with the given names. It returns an error if
// the network changes all the time while it reads.
func Find(host netns.NS, previous []netip.Addr, except ...string) ([]netip.Addr, error) {
	h, err := host.Netlink()
	if err != nil {
		return nil, fmt.Errorf("find the addresses of this machine: %w", err)
	}
	defer h.Close()
	var out []netip.Addr
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		var list []candidate
		if err := netns.Dump(func() (err error) { list, err = listCandidates(h, family, except); return err }); err != nil {
			return nil, fmt.Errorf("find the addresses of this machine: %w", err)
		}
		if ip, ok := chooseAddress(list, previous); ok {
			out = append(out, ip)
		}
	}
	return out, nil
}

// A candidate is a possible address of the machine. A lower rank is better.
type candidate struct {
	ip   netip.Addr
	rank int
}

// These are the ranks, the best one first. A secondary address is an IPv4 address with the kernel's secondary flag, or a private (unique
// local) IPv6 address.
const (
	rankRouteSource        = iota // the preferred source address of the default route
	rankRouteLink                 // a primary address on the link of the default route
	rankRouteLinkSecondary        // a secondary address on that link
	rankOtherLink                 // a primary address on another link
	rankOtherLinkSecondary        // a secondary address on another link
	rankInnerBridge               // any address on a bridge of containers or virtual machines: see innerBridges
)

// chooseAddress returns the best candidate. If several candidates have the best rank, it returns a previous address, or else the lowest
// address. The result therefore does not depend on the kernel's order. If there is no default route, it returns a previous address
// regardless of the ranks, but not one of an inner bridge. If only inner bridges have an address, but the machine had another address
// before, it returns none, because the machine's network is not up yet.
func chooseAddress(list []candidate, previous []netip.Addr) (ip netip.Addr, ok bool) {
	if len(list) == 0 {
		return ip, false
	}
	sorting.By(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), a.ip.Compare(b.ip))
	})
	best := list[0].rank
	for _, c := range list {
		if (c.rank == best || best >= rankOtherLink && c.rank < rankInnerBridge) && slices.Contains(previous, c.ip) {
			return c.ip, true
		}
	}
	had := func(p netip.Addr) bool { return p.Is4() == list[0].ip.Is4() }
	if best == rankInnerBridge && slices.ContainsFunc(previous, had) {
		return ip, false
	}
	return list[0].ip, true
}

// innerBridges returns the indexes of the bridges to which only containers and virtual machines are connected, such as docker0. Such a
// bridge has an address before the machine's network comes, and other machines cannot reach it.
func innerBridges(links []netlink.Link) map[int]bool {
	inner := map[int]bool{}
	for _, l := range links {
		if l.Type() == "bridge" {
			inner[l.Attrs().Index] = true
		}
	}
	for _, l := range links {
		switch l.Type() {
		case "veth", "tuntap", "dummy":
		default:
			delete(inner, l.Attrs().MasterIndex)
		}
	}
	return inner
}

// listCandidates lists the usable addresses of one family.
func listCandidates(h *netlink.Handle, family int, except []string) ([]candidate, error) {
	source, routeLink, err := defaultRoute(h, family)
	if err != nil {
		return nil, err
	}
	links, err := h.LinkList()
	if err != nil {
		return nil, err
	}
	usable, inner := map[int]bool{}, innerBridges(links)
	for _, l := range links {
		a := l.Attrs()
		usable[a.Index] = a.Flags&unix.IFF_UP != 0 && a.Flags&unix.IFF_LOOPBACK == 0 && !slices.Contains(except, a.Name)
	}
	addrs, err := h.AddrList(nil, family)
	if err != nil {
		return nil, err
	}
	var out []candidate
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		ip = ip.Unmap()
		temporary := family == netlink.FAMILY_V6 && a.Flags&unix.IFA_F_TEMPORARY != 0
		if !ok || !ip.IsGlobalUnicast() || a.Flags&unusableFlags != 0 || temporary || !usable[a.LinkIndex] {
			continue
		}
		second := family == netlink.FAMILY_V4 && a.Flags&unix.IFA_F_SECONDARY != 0 || family == netlink.FAMILY_V6 && ip.IsPrivate()
		c := candidate{ip: ip, rank: rankRouteSource}
		if routeLink == 0 || ip != source {
			c.rank = rankLink(routeLink == a.LinkIndex, inner[a.LinkIndex], second)
		}
		out = append(out, c)
	}
	return out, nil
}

// rankLink returns the rank of an address that is not the preferred source of the default route. Its link may have the default route
// or an inner bridge, and it may be a secondary address.
func rankLink(ofRoute, inner, second bool) int {
	rank := rankOtherLink
	switch {
	case ofRoute:
		rank = rankRouteLink
	case inner:
		return rankInnerBridge
	}
	if second {
		rank++
	}
	return rank
}

// defaultRoute finds the default route that the kernel uses. It returns the preferred source address and the link index of that route. If
// there is no default route, the index is 0. If the route has no preferred source, the address is invalid.
func defaultRoute(h *netlink.Handle, family int) (source netip.Addr, link int, err error) {
	routes, err := h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return source, 0, err
	}
	best := -1
	for i, r := range routes {
		isDefault := r.Dst == nil || r.Dst.IP.IsUnspecified()
		if r.Dst != nil && isDefault {
			ones, _ := r.Dst.Mask.Size()
			isDefault = ones == 0
		}
		usable := isDefault && r.Type == unix.RTN_UNICAST && r.Flags&unix.RTNH_F_LINKDOWN == 0
		if usable && (best < 0 || r.Priority < routes[best].Priority) {
			best = i
		}
	}
	if best < 0 {
		return source, 0, nil
	}
	r := routes[best]
	link = r.LinkIndex
	if link == 0 && len(r.MultiPath) > 0 {
		link = r.MultiPath[0].LinkIndex
	}
	source, _ = netip.AddrFromSlice(r.Src)
	return source.Unmap(), link, nil
}
