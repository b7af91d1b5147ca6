package bridge

import (
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/net/netns"
)

// addrGenNone is IN6_ADDR_GEN_MODE_NONE.
const addrGenNone = 1

// creation returns the request that creates the veth pair. The node's end is up and is a port of the bridge. The pod's end is in the
// namespace of the file descriptor. It is down, because otherwise the node's end would get an IPv6 address before portSettings disables it.
func (p Port) creation(namespace int) netns.Request {
	r := linkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, 0, unix.IFF_UP)
	r.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(p.Host)))
	r.AddData(nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(p.Bridge.Attrs().Index))))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC)
	peer.AddRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(p.Interface))
	peer.AddRtAttr(unix.IFLA_TXQLEN, nl.Uint32Attr(0)) // what programs that use the library's Veth set, such as the CNI plugin bridge
	if p.MTU > 0 {
		r.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(p.MTU))))
		peer.AddRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(p.MTU)))
	}
	if p.MAC != nil {
		peer.AddRtAttr(unix.IFLA_ADDRESS, p.MAC)
	}
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(namespace)))
	r.AddData(info)
	return netns.Request{NetlinkRequest: r, What: "create veth " + p.Host + " on bridge " + p.Bridge.Attrs().Name}
}

// plugging returns the request that adds an existing interface to the bridge.
func (p Port) plugging(index int) netns.Request {
	r := linkRequest(unix.RTM_SETLINK, 0, index, 0)
	r.AddData(nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(p.Bridge.Attrs().Index))))
	return netns.Request{NetlinkRequest: r, What: "add " + p.Host + " to bridge " + p.Bridge.Attrs().Name}
}

// portSettings returns the requests that configure the node's end, which has the index, as a port of the bridge. The kernel accepts these
// settings only for an interface that exists.
func (p Port) portSettings(index int) []netns.Request {
	// The node's addresses are on the bridge. Its ports need no addresses.
	r := linkRequest(unix.RTM_SETLINK, 0, index, 0)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	spec.AddRtAttr(unix.AF_INET6, nil).AddRtAttr(unix.IFLA_INET6_ADDR_GEN_MODE, []byte{addrGenNone})
	r.AddData(spec)
	all := []netns.Request{{NetlinkRequest: r, What: "disable automatic IPv6 addresses of " + p.Host, Accept: unix.EAFNOSUPPORT}}
	if !p.Hairpin && !p.Isolated {
		return all
	}
	r = nl.NewNetlinkRequest(unix.RTM_SETLINK, 0)
	m := nl.NewIfInfomsg(unix.AF_BRIDGE)
	m.Index = int32(index)
	r.AddData(m)
	port := nl.NewRtAttr(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, nil)
	if p.Hairpin {
		port.AddRtAttr(nl.IFLA_BRPORT_MODE, []byte{1})
	}
	if p.Isolated {
		port.AddRtAttr(nl.IFLA_BRPORT_ISOLATED, []byte{1})
	}
	r.AddData(port)
	return append(all, netns.Request{NetlinkRequest: r, What: "set hairpin mode or isolation of " + p.Host})
}

// deletion returns the request that removes an interface, which need not exist. It contains the name, so that the kernel need not be asked
// for the index first.
func deletion(name string) netns.Request {
	r := linkRequest(unix.RTM_DELLINK, 0, 0, 0)
	r.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	return netns.Request{NetlinkRequest: r, What: "remove veth " + name, Accept: unix.ENODEV}
}

// loopbackUp returns the request that brings up the loopback interface, whose index is always 1.
func loopbackUp() netns.Request { return upRequest(1, "set loopback up") }

func upRequest(index int, what string) netns.Request {
	return netns.Request{NetlinkRequest: linkRequest(unix.RTM_NEWLINK, 0, index, unix.IFF_UP), What: what}
}

// linkRequest returns a request about an interface. The index 0 means that the caller adds the name. The flags are set and not cleared.
func linkRequest(kind, how, index int, flags uint32) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(kind, how)
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Index, m.Flags, m.Change = int32(index), flags, flags
	r.AddData(m)
	return r
}

// addressRequest returns the request that adds an address to an interface, with the broadcast address of its network. An address that the
// interface has already is not an error.
func addressRequest(index int, p netip.Prefix, dad bool) netns.Request {
	r := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m := nl.NewIfAddrmsg(family(p.Addr()))
	m.Index, m.Prefixlen = uint32(index), uint8(p.Bits())
	if p.Addr().Is6() && !dad {
		m.Flags = unix.IFA_F_NODAD
	}
	r.AddData(m)
	address := p.Addr().AsSlice()
	r.AddData(nl.NewRtAttr(unix.IFA_LOCAL, address))
	r.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, address))
	if p.Addr().Is4() && p.Bits() < 31 {
		broadcast, mask := p.Addr().AsSlice(), ipNet(p).Mask
		for i := range broadcast {
			broadcast[i] |= ^mask[i]
		}
		r.AddData(nl.NewRtAttr(unix.IFA_BROADCAST, broadcast))
	}
	return netns.Request{NetlinkRequest: r, What: "add address " + p.String(), Accept: unix.EEXIST}
}

// request returns the request that adds the route through an interface. A route that exists already is not an error.
func (r Route) request(index int) netns.Request {
	q := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m := nl.NewRtMsg()
	m.Family, m.Dst_len = uint8(family(r.Dst.Addr())), uint8(r.Dst.Bits())
	if !r.Gateway.IsValid() {
		m.Scope = unix.RT_SCOPE_LINK
	}
	q.AddData(m)
	q.AddData(nl.NewRtAttr(unix.RTA_DST, r.Dst.Masked().Addr().AsSlice()))
	if r.Gateway.IsValid() {
		q.AddData(nl.NewRtAttr(unix.RTA_GATEWAY, r.Gateway.AsSlice()))
	}
	q.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))))
	what := "add route to " + r.Dst.String() + " by " + r.Gateway.String()
	return netns.Request{NetlinkRequest: q, What: what, Accept: unix.EEXIST}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
