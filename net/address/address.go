package address

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/net/netns"
)

// unfit are flags of addresses that say nothing lasting: they are to go, or not
// there yet. The one for temporary addresses means something else in IPv4.
const unfit = unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

// Find gives at most one address of each family, IPv4 first. before are those that
// were found last; one of them that is as good as any other stays. Links named in
// except are no way out, whatever their addresses.
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

// A candidate is an address that may be the machine's. A lower rank is better.
type candidate struct {
	ip   netip.Addr
	rank int
}

// Ranks, the best first. Second are the IPv4 addresses that were added to a network
// which had one, and the IPv6 addresses that only this site knows.
const (
	ofRoute        = iota // the source that the default route names
	ofLink                // on the link of the default route
	secondOfLink          //
	anywhere              // on another link
	secondAnywhere        //
)

// choose takes the best, and of equals the one of before, or else the least, so that
// the order in which the kernel lists them does not matter. While there is no way out
// the address of before stays.
func choose(all []candidate, before []netip.Addr) netip.Addr {
	slices.SortFunc(all, func(a, b candidate) int {
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

// candidates lists the addresses of one family.
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
		if !ok || !ip.IsGlobalUnicast() || a.Flags&unfit != 0 || temporary || !usable[a.LinkIndex] {
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

// defaultRoute gives the link of the default route that the kernel would take, 0 if
// there is none, and the source address that it names, which may be none.
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
	if link = r.LinkIndex; link == 0 && len(r.MultiPath) > 0 {
		link = r.MultiPath[0].LinkIndex
	}
	source, _ = netip.AddrFromSlice(r.Src)
	return source.Unmap(), link, nil
}
