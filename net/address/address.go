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

// unusable contains the flags of addresses that will be removed, and of addresses that are not ready yet. The flag for
// temporary addresses is checked separately, because it has another meaning in IPv4.
const unusable = unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

// Find returns at most one address of each family, IPv4 first. before contains the addresses that the previous call
// returned. Find prefers them to other addresses of the same rank. It ignores the interfaces in except.
func Find(host netns.NS, before []netip.Addr, except ...string) ([]netip.Addr, error) {
	h, err := host.Netlink()
	if err != nil {
		return nil, fmt.Errorf("look for the addresses of this machine: %w", err)
	}
	defer h.Close()
	var out []netip.Addr
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := candidates(h, family, except)
		if err != nil {
			return nil, fmt.Errorf("look for the addresses of this machine: %w", err)
		}
		if len(all) > 0 {
			out = append(out, choose(all, before))
		}
	}
	return out, nil
}

// A candidate is a possible address of the machine. A lower rank is better.
type candidate struct {
	ip   netip.Addr
	rank int
}

// These are the ranks, the best first. A secondary address is an IPv4 address with the kernel's
// secondary flag, or a private (unique local) IPv6 address.
const (
	ofRoute        = iota // the preferred source address of the default route
	ofLink                // a primary address on the link of the default route
	secondOfLink          // a secondary address on that link
	anywhere              // a primary address on another link
	secondAnywhere        // a secondary address on another link
)

// choose returns the best candidate. Of several candidates with the best rank, it prefers one in
// before, and then the lowest address, so that the kernel's order does not matter. Without a
// default route, it returns an address in before, whatever its rank.
func choose(all []candidate, before []netip.Addr) netip.Addr {
	sorting.By(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), a.ip.Compare(b.ip))
	})
	best := all[0].rank
	for _, c := range all {
		if (c.rank == best || best >= anywhere) && slices.Contains(before, c.ip) {
			return c.ip
		}
	}
	return all[0].ip
}

// candidates lists the usable addresses of one family.
func candidates(h *netlink.Handle, family int, except []string) ([]candidate, error) {
	source, way, err := defaultRoute(h, family)
	if err != nil {
		return nil, err
	}
	links, err := h.LinkList()
	if err != nil {
		return nil, err
	}
	usable := map[int]bool{}
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
		if !ok || !ip.IsGlobalUnicast() || a.Flags&unusable != 0 || temporary || !usable[a.LinkIndex] {
			continue
		}
		second := family == netlink.FAMILY_V4 && a.Flags&unix.IFA_F_SECONDARY != 0 || family == netlink.FAMILY_V6 && ip.IsPrivate()
		c := candidate{ip: ip, rank: anywhere}
		if way == a.LinkIndex {
			c.rank = ofLink
		}
		if second {
			c.rank++
		}
		if way != 0 && ip == source {
			c.rank = ofRoute
		}
		out = append(out, c)
	}
	return out, nil
}

// defaultRoute returns the link index of the default route that the kernel uses, and the route's preferred source
// address. The index is 0 if there is no default route. The address is invalid if the route has no such address.
func defaultRoute(h *netlink.Handle, family int) (source netip.Addr, link int, err error) {
	routes, err := h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return source, 0, err
	}
	best := -1
	for i, r := range routes {
		whole := r.Dst == nil || r.Dst.IP.IsUnspecified()
		if r.Dst != nil && whole {
			ones, _ := r.Dst.Mask.Size()
			whole = ones == 0
		}
		if whole && r.Type == unix.RTN_UNICAST && r.Flags&unix.RTNH_F_LINKDOWN == 0 && (best < 0 || r.Priority < routes[best].Priority) {
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
