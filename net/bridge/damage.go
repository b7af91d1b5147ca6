package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/net/netns"
)

// These are the kinds of damage.
const (
	FaultBridge  = "bridge"
	FaultAddress = "address"
	FaultRoute   = "route"
	FaultSysctl  = "sysctl"
	FaultPort    = "port"
)

// A Fault is an object that is missing or changed, compared with the configuration that Ensure and Forward make.
type Fault struct {
	Kind string
	Name string // the name of the link, address, route or sysctl
}

// FindDamage returns the faults that Ensure would repair. It changes nothing.
func FindDamage(ns netns.NS, c Config) ([]Fault, error) {
	h, err := ns.Netlink()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	link, err := h.LinkByName(c.Name)
	switch {
	case notFound(err):
		return []Fault{{FaultBridge, c.Name}}, nil // the repair of the bridge also restores its addresses and routes
	case err != nil:
		return nil, fmt.Errorf("bridge %s: %w", c.Name, err)
	case link.Type() != "bridge":
		return nil, fmt.Errorf("bridge %s: %w", c.Name, notABridge(link))
	}
	var out []Fault
	if link.Attrs().Flags&net.FlagUp == 0 {
		out = append(out, Fault{FaultBridge, c.Name})
	}
	differing, err := ns.DifferingSysctls(Sysctls(c)...)
	if err != nil {
		return nil, err
	}
	for _, s := range differing {
		out = append(out, Fault{FaultSysctl, "net." + s.Name})
	}
	addrs, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	existing := map[netip.Prefix]bool{}
	for _, a := range addrs {
		if p, ok := prefixOf(a.IPNet); ok {
			existing[p] = true
		}
	}
	for _, p := range c.Addresses {
		if !existing[p] {
			out = append(out, Fault{FaultAddress, p.String()})
		}
	}
	if c.Routes && len(out) == 0 { // the repair of a missing address restores the routes too
		missing, err := missingRoutes(h, link, c)
		if err != nil {
			return nil, err
		}
		for _, r := range missing {
			out = append(out, Fault{FaultRoute, r.Dst.String()})
		}
	}
	return out, nil
}

// Sysctls returns the sysctls that Ensure and Forward set for a bridge.
func Sysctls(c Config) []netns.Sysctl {
	return append(c.bridgeSysctls(), forwardingSysctls(c.Addresses)...)
}

// forwardingSysctls returns the sysctls that Forward sets for the families of the addresses.
func forwardingSysctls(addresses []netip.Prefix) (out []netns.Sysctl) {
	for _, a := range addresses {
		if a.Addr().Is4() {
			out = append(out, netns.Sysctl{Name: "ipv4/ip_forward", Value: "1"})
		} else {
			out = append(out, netns.Sysctl{Name: "ipv6/conf/all/forwarding", Value: "1"})
		}
	}
	return out
}

// missingRoutes returns the missing routes of the bridge's addresses. Each address needs a route to its network through the bridge, and a
// local route to the address. An IPv6 address also needs the route to ::1.
func missingRoutes(h *netlink.Handle, link netlink.Link, c Config) (out []*netlink.Route, err error) {
	index := link.Attrs().Index
	for _, p := range c.Addresses {
		family, metric := netlink.FAMILY_V4, 0
		if p.Addr().Is6() {
			family, metric = netlink.FAMILY_V6, 256
		}
		self := netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
		wanted := []*netlink.Route{
			{
				LinkIndex: index, Table: unix.RT_TABLE_MAIN, Dst: ipNet(p.Masked()),
				Protocol: unix.RTPROT_KERNEL, Scope: netlink.SCOPE_LINK, Priority: metric,
			},
			{
				LinkIndex: index, Table: unix.RT_TABLE_LOCAL, Dst: ipNet(self),
				Protocol: unix.RTPROT_KERNEL, Scope: netlink.SCOPE_HOST, Type: unix.RTN_LOCAL,
			},
		}
		if family == netlink.FAMILY_V4 {
			wanted[0].Src, wanted[1].Src = p.Addr().AsSlice(), p.Addr().AsSlice()
		} else {
			wanted[0].Scope, wanted[1].Scope = netlink.SCOPE_UNIVERSE, netlink.SCOPE_UNIVERSE
			wanted = append(wanted, loopback6Route(link))
		}
		for _, r := range wanted {
			filter := &netlink.Route{Table: r.Table, Dst: r.Dst}
			existing, err := h.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
			if err != nil {
				return nil, fmt.Errorf("list routes to %s: %w", r.Dst, err)
			}
			if !hasRoute(existing, r) {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// hasRoute reports whether the list contains a route that serves the same purpose as r. The interface may differ: the kernel puts the local
// route of an IPv6 address on the loopback interface.
func hasRoute(list []netlink.Route, r *netlink.Route) bool {
	for _, existing := range list {
		own := existing.LinkIndex == r.LinkIndex
		if r.Table == unix.RT_TABLE_LOCAL && !r.Dst.IP.IsLoopback() {
			own = own || existing.LinkIndex == 1
		}
		if own {
			return true
		}
	}
	return false
}

// restoreRoutes adds the missing routes.
func restoreRoutes(h *netlink.Handle, link netlink.Link, c Config) error {
	missing, err := missingRoutes(h, link, c)
	if err != nil {
		return err
	}
	for _, r := range missing {
		if err := h.RouteAdd(r); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("add route to %s: %w", r.Dst, err)
		}
	}
	return nil
}

// MissingPorts returns the given interfaces that are missing, that are down, or that are not ports of the bridge.
func MissingPorts(ns netns.NS, bridge string, ends []string) ([]string, error) {
	if len(ends) == 0 {
		return nil, nil
	}
	h, err := ns.Netlink()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	br, err := h.LinkByName(bridge)
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", bridge, err)
	}
	links, err := findLinks(h, ends)
	if err != nil {
		return nil, err
	}
	plugged := map[string]bool{}
	for _, l := range links {
		a := l.Attrs()
		plugged[a.Name] = a.MasterIndex == br.Attrs().Index && a.Flags&net.FlagUp != 0
	}
	var out []string
	for _, end := range ends {
		if !plugged[end] {
			out = append(out, end)
		}
	}
	return out, nil
}

// fewLinks is the number of interfaces up to which the kernel is asked for each. A list of all interfaces takes longer the more pods the
// node has.
const fewLinks = 4

// findLinks returns the interfaces with these names that exist, and maybe others.
func findLinks(h *netlink.Handle, names []string) (links []netlink.Link, err error) {
	if len(names) > fewLinks {
		links, err = h.LinkList()
	} else {
		for _, name := range names {
			link, failed := h.LinkByName(name)
			if failed == nil {
				links = append(links, link)
			} else if !notFound(failed) {
				err = failed
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return links, nil
}

// ReattachPort adds the node's end of the veth pair to the bridge again, and sets this end up. If the pair is missing, or the other end is
// not in the pod's namespace, the error wraps fs.ErrNotExist.
func ReattachPort(host, pod netns.NS, p Port) error {
	h, err := host.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	end, err := h.LinkByName(p.Host)
	if notFound(err) {
		return fmt.Errorf("veth %s: %w", p.Host, os.ErrNotExist)
	}
	if err != nil {
		return err
	}
	s, err := host.Socket()
	if err != nil {
		return err
	}
	defer s.Close()
	index := end.Attrs().Index
	if err := s.Send(append([]netns.Request{p.plugging(index)}, p.portSettings(index)...)...); err != nil {
		return err
	}
	// The port is set up last and on its own: a port that is down is found and repaired again.
	if err := s.Send(upRequest(index, "set "+p.Host+" up")); err != nil {
		return err
	}
	if err := evaluateCarriers(s.Fd(), p.Host, p.Bridge.Attrs().Name); err != nil {
		return err
	}
	return checkPeer(end, pod, p)
}

// checkPeer returns an error that wraps fs.ErrNotExist if the peer of the veth is not in the pod's namespace.
func checkPeer(end netlink.Link, pod netns.NS, p Port) error {
	in, err := pod.Netlink()
	if err != nil {
		return err
	}
	defer in.Close()
	link, err := in.LinkByIndex(end.Attrs().ParentIndex)
	if notFound(err) || err == nil && link.Type() != "veth" {
		return fmt.Errorf("other end of veth %s: %w", p.Host, os.ErrNotExist)
	}
	return err
}
