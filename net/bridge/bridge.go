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

// Link is a network interface of package netlink.
type Link = netlink.Link

// Config describes a bridge.
type Config struct {
	Name      string
	Addresses []netip.Prefix // the node's addresses, with the prefix length of the pod network
	MTU       int            // 0 means the kernel's default
	Promisc   bool
	// Foreign reports whether Ensure must remove an address that is not in Addresses. If Foreign is nil, Ensure removes no address.
	// Ensure never removes link-local addresses.
	Foreign func(netip.Prefix) bool
	// If Exclusive is true, Ensure fails if another interface has an address in the pod network. The pods would be unreachable in that
	// case.
	Exclusive bool
	// If Routes is true, Ensure also checks the routes that the kernel has created for Addresses. Such a route is missing only if another
	// program has removed it. The duration of the check grows with the number of routes.
	Routes bool
}

// Ensure creates the bridge, or changes it to match the Config, and returns its link. If the bridge is already correct, Ensure is cheap.
// After a failure, it removes a bridge that it has created.
func Ensure(ns netns.NS, c Config) (_ Link, err error) {
	h, err := ns.Netlink()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	link, created, err := findOrCreate(h, c)
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", c.Name, err)
	}
	defer func() {
		if err != nil && created {
			err = errors.Join(err, h.LinkDel(link))
		}
	}()
	if err := ns.Set(c.bridgeSysctls()...); err != nil {
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
	if err := setAddresses(ns, h, link, c); err != nil {
		return nil, fmt.Errorf("bridge %s: %w", c.Name, err)
	}
	if c.Routes {
		if err := restoreRoutes(h, link, c); err != nil {
			return nil, fmt.Errorf("bridge %s: %w", c.Name, err)
		}
	}
	return link, nil
}

// addLoopback6Route adds a route to ::1 through the bridge, which host ports at ::1 need. Because of this route, the node accepts replies
// to ::1 that arrive at the bridge. In IPv4, route_localnet has the same effect. If bridge-nf-call-ip6tables is on, the kernel still drops
// these replies.
func addLoopback6Route(h *netlink.Handle, link netlink.Link) error {
	err := h.RouteAdd(loopback6Route(link))
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("add a route for ::1: %w", err)
	}
	return nil
}

func loopback6Route(link netlink.Link) *netlink.Route {
	return &netlink.Route{
		LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(netip.IPv6Loopback(), 128)),
		Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Priority: 1024, // lower precedence than the route of the loopback interface
	}
}

func findOrCreate(h *netlink.Handle, c Config) (link netlink.Link, created bool, err error) {
	link, err = h.LinkByName(c.Name)
	if notFound(err) {
		snooping := false // multicast snooping costs timers and memory, and is useless among veths
		br := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: &snooping}
		br.Name, br.MTU, br.Flags = c.Name, c.MTU, net.FlagUp
		if len(c.Addresses) > 0 { // without a fixed MAC address, it would change with the ports of the bridge
			br.HardwareAddr = MAC(c.Addresses[0].Addr())
		}
		err := h.LinkAdd(br)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return nil, false, fmt.Errorf("create: %w", err)
		}
		created = err == nil
		link, err = h.LinkByName(c.Name)
		if err != nil {
			return nil, false, err
		}
	} else if err != nil {
		return nil, false, err
	}
	if link.Type() != "bridge" {
		return nil, false, notABridge(link)
	}
	return link, created, nil
}

// Find returns the link of an existing bridge.
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

// IsUp reports whether a link that Ensure returned still exists, is up, and has the same MTU. It costs 5 system calls, and Find 11.
func IsUp(ns netns.NS, link Link) (bool, error) {
	s, err := ns.Socket()
	if err != nil {
		return false, err
	}
	defer s.Close()
	a := link.Attrs()
	index, err := s.Index(a.Name)
	if err != nil || index != a.Index {
		return false, err
	}
	r, err := unix.NewIfreq(a.Name)
	if err == nil {
		err = unix.IoctlIfreq(s.Fd(), unix.SIOCGIFMTU, r)
	}
	if err != nil || int(r.Uint32()) != a.MTU {
		return false, err
	}
	err = unix.IoctlIfreq(s.Fd(), unix.SIOCGIFFLAGS, r)
	return err == nil && r.Uint16()&unix.IFF_UP != 0, err
}

// bridgeSysctls returns the sysctls of the bridge except route_localnet. Package portmap sets route_localnet, together with the firewall
// rule that makes it safe.
func (c Config) bridgeSysctls() []netns.Sysctl {
	at6 := "ipv6/conf/" + c.Name + "/"
	values := []netns.Sysctl{
		{Name: at6 + "accept_dad", Value: "0", Optional: true},
		{Name: at6 + "accept_ra", Value: "0", Optional: true}, // pods must not add routes to the node
	}
	for _, a := range c.Addresses {
		if a.Addr().Is6() {
			values = append(values, netns.Sysctl{Name: at6 + "disable_ipv6", Value: "0"})
		}
	}
	return values
}

// setAddresses adds the missing addresses of the bridge. It removes other addresses for which Foreign returns true, except link-local
// addresses.
func setAddresses(ns netns.NS, h *netlink.Handle, link netlink.Link, c Config) error {
	addrs, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	var existing []netip.Prefix
	for _, a := range addrs {
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
		existing = append(existing, p)
	}
	exists := func(p netip.Prefix) bool { return slices.Contains(existing, p) }
	missing := slices.DeleteFunc(slices.Clone(c.Addresses), exists)
	w := watchFor(missing)
	defer w.close()
	if err := w.open(ns); err != nil {
		return err
	}
	for _, p := range missing {
		if err := checkFree(h, link.Attrs().Index, p, c.Exclusive); err != nil {
			return err
		}
		if err := addAddress(h, link, p); err != nil {
			return err
		}
		if p.Addr().Is6() {
			if err := addLoopback6Route(h, link); err != nil {
				return err
			}
		}
	}
	return w.waitUsable()
}

// FindObstacle returns an error if Ensure would fail because of an existing interface. It changes nothing.
func FindObstacle(ns netns.NS, c Config) error {
	h, err := ns.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	index := 0
	link, err := h.LinkByName(c.Name)
	switch {
	case err == nil && link.Type() != "bridge":
		return fmt.Errorf("bridge %s: %w", c.Name, notABridge(link))
	case err == nil:
		index = link.Attrs().Index
	case !notFound(err):
		return fmt.Errorf("bridge %s: %w", c.Name, err)
	}
	for _, p := range c.Addresses {
		if err := checkFree(h, index, p, c.Exclusive); err != nil {
			return fmt.Errorf("bridge %s: %w", c.Name, err)
		}
	}
	return nil
}

func notABridge(link netlink.Link) error {
	return fmt.Errorf("an interface of this name exists and is a %s: remove it, or choose another name", link.Type())
}

// checkFree returns an error if another interface has the address of the bridge. The kernel would permit this, but the pods of both
// interfaces would be unreachable. If the network must be exclusive, an address of another interface in the same network is an error, too.
func checkFree(h *netlink.Handle, index int, want netip.Prefix, exclusive bool) error {
	all, err := listAddresses(h)
	if err != nil {
		return err
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
		return errors.New(describeHolder(h, a.LinkIndex, p, want))
	}
	return nil
}

func listAddresses(h *netlink.Handle) (all []netlink.Addr, err error) {
	if err := netns.Dump(func() (err error) { all, err = h.AddrList(nil, netlink.FAMILY_ALL); return err }); err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return all, nil
}

// describeHolder says that a link has the address p, which conflicts with the bridge's address.
func describeHolder(h *netlink.Handle, index int, p, want netip.Prefix) string {
	what := "the address " + want.Addr().String()
	if p.Addr() != want.Addr() {
		what = fmt.Sprintf("the address %s, in the pods' network %s,", p, want.Masked())
	}
	return fmt.Sprintf("interface %s has %s already: islet doctor shows its owner, and islet doctor --fix removes it if it is unused; "+
		"or choose another podCIDR", linkName(h, index), what)
}

func linkName(h *netlink.Handle, index int) string {
	if l, err := h.LinkByIndex(index); err == nil {
		return l.Attrs().Name
	}
	return fmt.Sprintf("number %d", index)
}

func addAddress(h *netlink.Handle, link netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	if err := h.AddrAdd(link, a); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("add address %s to %s: %w", p, link.Attrs().Name, err)
	}
	return nil
}

// MAC derives a hardware address from an IP address. If another pod later gets the IP address, neighbour entries of other hosts therefore
// stay valid.
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
	addr = addr.Unmap()
	if !ok || bits != addr.BitLen() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr, ones), true
}

func notFound(err error) bool {
	var none netlink.LinkNotFoundError
	return errors.As(err, &none) || errors.Is(err, unix.ENODEV)
}

// NotFound reports whether an error means that an interface does not exist.
func NotFound(err error) bool { return notFound(err) }
