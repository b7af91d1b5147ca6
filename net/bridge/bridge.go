package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/islet-edge/islet/net/netns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is an interface as netlink shows it.
type Link = netlink.Link

// Config describes a bridge.
type Config struct {
	Name      string
	Addresses []netip.Prefix // of the node, with the length of the pod network
	MTU       int            // 0: the kernel's default
	Promisc   bool
	// Foreign says whether to remove an address that is not in Addresses; nil
	// means no. Link-local ones are always left.
	Foreign func(netip.Prefix) bool
	// Exclusive refuses networks to which another interface is the way already:
	// pods would not be reached.
	Exclusive bool
	// Routes has the routes compared that the kernel made for Addresses. They are missing
	// only where somebody removed them, and to list them costs more the more there are.
	Routes bool
}

// Ensure makes the bridge what Config says, or leaves it as it is, and returns
// its link. It is cheap when nothing is to be done. A bridge that it made is not left when
// it fails.
func Ensure(ns netns.NS, c Config) (_ Link, err error) {
	h, err := ns.Netlink()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	link, made, err := find(h, c)
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", c.Name, err)
	}
	defer func() {
		if err != nil && made {
			err = errors.Join(err, h.LinkDel(link))
		}
	}()
	if err := prepare(ns, c); err != nil {
		return nil, fmt.Errorf("bridge %s: %w", c.Name, err)
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := h.LinkSetUp(link); err != nil {
			return nil, fmt.Errorf("set bridge %s up: %w", c.Name, err)
		}
	}
	if c.Promisc && link.Attrs().Promisc == 0 {
		if err := h.SetPromiscOn(link); err != nil {
			return nil, fmt.Errorf("set bridge %s promiscuous: %w", c.Name, err)
		}
	}
	if err := address(ns, h, link, c); err != nil {
		return nil, fmt.Errorf("bridge %s: %w", c.Name, err)
	}
	if c.Routes {
		if err := reroute(h, link, c); err != nil {
			return nil, fmt.Errorf("bridge %s: %w", c.Name, err)
		}
	}
	return link, nil
}

// loopback6 lets answers to the node's own ::1 come in by the bridge, as
// route_localnet does for IPv4. Without it host ports do not work at ::1; where
// bridge-nf-call-ip6tables is on, the kernel drops these answers all the same.
func loopback6(h *netlink.Handle, link netlink.Link) error {
	err := h.RouteAdd(localhost6(link))
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("add a route for ::1: %w", err)
	}
	return nil
}

func localhost6(link netlink.Link) *netlink.Route {
	return &netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(netip.IPv6Loopback(), 128)),
		Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Priority: 1024, // behind the one of the loopback interface
	}
}

func find(h *netlink.Handle, c Config) (link netlink.Link, made bool, err error) {
	link, err = h.LinkByName(c.Name)
	if notFound(err) {
		snooping := false // it needs a querier, timers and memory, and gains nothing among veths
		br := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: &snooping}
		br.Name, br.MTU, br.Flags = c.Name, c.MTU, net.FlagUp
		if len(c.Addresses) > 0 { // else the bridge's address changes with its ports
			br.HardwareAddr = MAC(c.Addresses[0].Addr())
		}
		err := h.LinkAdd(br)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return nil, false, fmt.Errorf("create: %w", err)
		}
		made = err == nil
		link, err = h.LinkByName(c.Name)
		if err != nil {
			return nil, false, err
		}
	} else if err != nil {
		return nil, false, err
	}
	if link.Type() != "bridge" {
		return nil, false, noBridge(link)
	}
	return link, made, nil
}

// Find returns the link of a bridge that exists.
func Find(ns netns.NS, name string) (Link, error) {
	h, err := ns.Netlink()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	link, err := h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", name, err)
	}
	return link, nil
}

func prepare(ns netns.NS, c Config) error {
	return ns.Set(c.sysctls()...)
}

// sysctls are those of the bridge. route_localnet is not among them: package portmap
// sets it, with the rule that it needs.
func (c Config) sysctls() []netns.Sysctl {
	at6 := "ipv6/conf/" + c.Name + "/"
	values := []netns.Sysctl{
		{Name: at6 + "accept_dad", Value: "0", Optional: true},
		{Name: at6 + "accept_ra", Value: "0", Optional: true}, // pods shall not give the node routes
	}
	for _, a := range c.Addresses {
		if a.Addr().Is6() {
			values = append(values, netns.Sysctl{Name: at6 + "disable_ipv6", Value: "0"})
		}
	}
	return values
}

// address gives the link its addresses. Of others, link-local ones are left
// alone, and about the rest Foreign decides.
func address(ns netns.NS, h *netlink.Handle, link netlink.Link, c Config) error {
	have, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	var there []netip.Prefix
	for _, a := range have {
		p, ok := prefixOf(a.IPNet)
		if !ok || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if !slices.Contains(c.Addresses, p) && c.Foreign != nil && c.Foreign(p) {
			if err := h.AddrDel(link, &a); err != nil {
				return fmt.Errorf("remove address %s: %w", p, err)
			}
			continue
		}
		there = append(there, p)
	}
	missing := slices.DeleteFunc(slices.Clone(c.Addresses), func(p netip.Prefix) bool { return slices.Contains(there, p) })
	w, err := watchFor(ns, missing)
	if err != nil {
		return err
	}
	defer w.close()
	for _, p := range missing {
		if err := free(h, link.Attrs().Index, p, c.Exclusive); err != nil {
			return err
		}
		if err := addAddress(h, link, p, false); err != nil {
			return err
		}
		if p.Addr().Is6() {
			if err := loopback6(h, link); err != nil {
				return err
			}
		}
	}
	return w.wait(missing)
}

// Obstacle returns why Ensure would fail because of what others made, or nil.
// Nothing is changed.
func Obstacle(ns netns.NS, c Config) error {
	h, err := ns.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	index := 0
	link, err := h.LinkByName(c.Name)
	switch {
	case err == nil && link.Type() != "bridge":
		return fmt.Errorf("bridge %s: %w", c.Name, noBridge(link))
	case err == nil:
		index = link.Attrs().Index
	case !notFound(err):
		return fmt.Errorf("bridge %s: %w", c.Name, err)
	}
	for _, p := range c.Addresses {
		if err := free(h, index, p, c.Exclusive); err != nil {
			return fmt.Errorf("bridge %s: %w", c.Name, err)
		}
	}
	return nil
}

func noBridge(link netlink.Link) error {
	return fmt.Errorf("an interface of this name exists and is a %s: remove it, or choose another name", link.Type())
}

// free refuses an address that another interface has: the kernel would take it a
// second time, and the pods of both would be lost. Where exclusive, also one in a
// network that another interface is the way to.
func free(h *netlink.Handle, index int, want netip.Prefix, exclusive bool) error {
	all, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range all {
		p, ok := prefixOf(a.IPNet)
		if !ok || a.LinkIndex == index {
			continue
		}
		hides := exclusive && p.Bits() >= want.Bits() && !p.IsSingleIP() && want.Masked().Contains(p.Addr())
		if p.Addr() != want.Addr() && !hides {
			continue
		}
		holder := fmt.Sprintf("number %d", a.LinkIndex)
		if l, err := h.LinkByIndex(a.LinkIndex); err == nil {
			holder = l.Attrs().Name
		}
		what := "the address " + want.Addr().String()
		if p.Addr() != want.Addr() {
			what = fmt.Sprintf("the address %s, in the pods' network %s,", p, want.Masked())
		}
		return fmt.Errorf("interface %s has %s already: islet doctor says whose it is, and islet doctor --fix removes it when nobody uses it; or choose another podCIDR", holder, what)
	}
	return nil
}

func addAddress(h *netlink.Handle, link netlink.Link, p netip.Prefix, dad bool) error {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() && !dad {
		a.Flags = unix.IFA_F_NODAD
	}
	if err := h.AddrAdd(link, a); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("add address %s to %s: %w", p, link.Attrs().Name, err)
	}
	return nil
}

// MAC derives a hardware address from an IP address, so that a pod that gets an
// address anew has the neighbours' entries right at once.
func MAC(addr netip.Addr) net.HardwareAddr {
	b := addr.AsSlice()
	return append(net.HardwareAddr{0x0a, 0x58}, b[len(b)-4:]...)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if addr = addr.Unmap(); !ok || bits != addr.BitLen() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr, ones), true
}

func notFound(err error) bool {
	var none netlink.LinkNotFoundError
	return errors.As(err, &none) || errors.Is(err, unix.ENODEV)
}

// NotFound reports whether an error says that there is no such interface.
func NotFound(err error) bool { return notFound(err) }
