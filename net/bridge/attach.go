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
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A Port describes a pod's connection to a bridge: a veth pair.
type Port struct {
	Bridge    Link
	Host      string // name of the veth end on the node
	Interface string // name of the veth end in the pod
	MAC       net.HardwareAddr
	MTU       int
	Hairpin   bool // the bridge may send a frame back to the port from which it came
	Isolated  bool // the bridge forwards no frames between two isolated ports
	DAD       bool // enable duplicate address detection for IPv6
	Addresses []netip.Prefix
	Routes    []Route
}

// A Route is a route to Dst through Gateway. An invalid Gateway means a direct route.
type Route struct {
	Dst     netip.Prefix
	Gateway netip.Addr
}

// Attach creates the veth pair and configures both ends. On failure it removes the pair.
func Attach(host, pod netns.NS, p Port) (err error) {
	h, err := host.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	target, err := pod.Open()
	if err != nil {
		return err
	}
	defer target.Close()
	in, err := pod.Netlink()
	if err != nil {
		return err
	}
	defer in.Close()

	veth := &netlink.Veth{
		LinkAttrs: netlink.NewLinkAttrs(), PeerName: p.Interface,
		PeerNamespace: netlink.NsFd(target.Fd()), PeerHardwareAddr: p.MAC,
	}
	veth.Name, veth.MTU, veth.Flags = p.Host, p.MTU, net.FlagUp
	created := false
	defer func() {
		if err != nil && created {
			err = errors.Join(err, h.LinkDel(veth))
		}
	}()
	err = withDefaults(pod, p.ip6(), func() error {
		err := h.LinkAdd(veth)
		created = err == nil
		return err
	})
	if err != nil {
		return fmt.Errorf("create veth %s: %w", p.Host, err)
	}
	if err := attachToBridge(h, veth, p); err != nil {
		return err
	}
	w, err := watchFor(pod, p.Addresses)
	if err != nil {
		return err
	}
	defer w.close()
	if err := configureInterface(in, p); err != nil {
		return fmt.Errorf("configure %s of the pod: %w", p.Interface, err)
	}
	if err := host.Do(func() error { return evaluateCarriers(p.Host, p.Bridge.Attrs().Name) }); err != nil {
		return err
	}
	return w.waitUsable(p.Addresses)
}

// ip6 returns the sysctls that enable IPv6 on the pod's interface, or disable it.
func (p Port) ip6() []netns.Sysctl {
	const at = "ipv6/conf/default/"
	if !slices.ContainsFunc(p.Addresses, func(a netip.Prefix) bool { return a.Addr().Is6() }) {
		// A pod without an IPv6 network has no IPv6 at all, not even link-local addresses.
		return []netns.Sysctl{{Name: at + "disable_ipv6", Value: "1", Optional: true}}
	}
	values := []netns.Sysctl{{Name: at + "disable_ipv6", Value: "0"}, {Name: at + "accept_ra", Value: "0"}}
	if !p.DAD {
		values = append(values, netns.Sysctl{Name: at + "accept_dad", Value: "0"})
	}
	return values
}

// withDefaults sets the sysctls for new interfaces, lets the caller create one interface in the namespace, and restores the sysctls. This
// is much faster than writing disable_ipv6 of an existing interface. The kernel restarts such a write while another network change holds a
// lock. When a hundred pods started, these restarts took a quarter of the agent's CPU time.
func withDefaults(ns netns.NS, defaults []netns.Sysctl, create func() error) error {
	before, err := ns.Swap(defaults...)
	if err == nil {
		err = create()
	}
	return errors.Join(err, ns.Set(before...))
}

// addrGenNone is IN6_ADDR_GEN_MODE_NONE.
const addrGenNone = 1

// attachToBridge adds the node's end of the veth pair to the bridge, as a port.
func attachToBridge(h *netlink.Handle, veth netlink.Link, p Port) error {
	// The node's addresses are on the bridge. Its ports need no addresses.
	if err := h.LinkSetIP6AddrGenMode(veth, addrGenNone); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("disable automatic IPv6 addresses of %s: %w", p.Host, err)
	}
	if err := h.LinkSetMaster(veth, p.Bridge); err != nil {
		return fmt.Errorf("add %s to bridge %s: %w", p.Host, p.Bridge.Attrs().Name, err)
	}
	if p.Hairpin {
		if err := h.LinkSetHairpin(veth, true); err != nil {
			return fmt.Errorf("set hairpin mode of %s: %w", p.Host, err)
		}
	}
	if p.Isolated {
		if err := h.LinkSetIsolated(veth, true); err != nil {
			return fmt.Errorf("isolate %s: %w", p.Host, err)
		}
	}
	return nil
}

// configureInterface sets up the pod's interface and the loopback interface.
func configureInterface(h *netlink.Handle, p Port) error {
	if err := loopbackUp(h); err != nil {
		return err
	}
	link, err := h.LinkByName(p.Interface)
	if err != nil {
		return err
	}
	if err := h.LinkSetUp(link); err != nil {
		return err
	}
	for _, a := range p.Addresses {
		if err := addAddress(h, link, a, p.DAD); err != nil {
			return err
		}
	}
	for _, r := range p.Routes {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.Dst.Masked())}
		if r.Gateway.IsValid() {
			route.Gw = r.Gateway.AsSlice()
		} else {
			route.Scope = netlink.SCOPE_LINK
		}
		if err := h.RouteAdd(route); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("add route to %s by %s: %w", r.Dst, r.Gateway, err)
		}
	}
	return nil
}

// SetLoopbackUp brings up the loopback interface of a namespace.
func SetLoopbackUp(ns netns.NS) error {
	h, err := ns.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	return loopbackUp(h)
}

func loopbackUp(h *netlink.Handle) error {
	lo, err := h.LinkByIndex(1)
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if lo.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	return nil
}

// Detach removes a veth pair, given the name of one end. A missing pair is not an error, because the kernel may have removed it together
// with the pod's namespace. The request contains the name, so that the kernel need not be asked for the index first.
func Detach(ns netns.NS, name string) error {
	err := ns.Do(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
		req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
	if err != nil && !notFound(err) {
		return fmt.Errorf("remove veth %s: %w", name, err)
	}
	return nil
}

// IsAttached reports whether the pod has the interface with all addresses, and whether the interface's peer is a port of the bridge.
func IsAttached(host, pod netns.NS, p Port) (bool, error) {
	h, err := host.Netlink()
	if err != nil {
		return false, err
	}
	defer h.Close()
	end, err := h.LinkByName(p.Host)
	if notFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if end.Attrs().MasterIndex != p.Bridge.Attrs().Index {
		return false, nil
	}
	in, err := pod.Netlink()
	if err != nil {
		return false, err
	}
	defer in.Close()
	link, err := in.LinkByName(p.Interface)
	if notFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if end.Attrs().ParentIndex != link.Attrs().Index || link.Attrs().Flags&net.FlagUp == 0 {
		return false, nil
	}
	addrs, err := in.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return false, err
	}
	existing := map[netip.Prefix]bool{}
	for _, a := range addrs {
		if prefix, ok := prefixOf(a.IPNet); ok {
			existing[prefix] = true
		}
	}
	for _, a := range p.Addresses {
		if !existing[a] {
			return false, nil
		}
	}
	return true, nil
}

// Ports returns the names of the veths that are ports of the bridge. It also returns veths that are ports of no bridge, because a crash
// after the creation of a veth can leave it without a bridge.
func Ports(host netns.NS, bridge string) ([]string, error) {
	h, err := host.Netlink()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	in := 0
	br, err := h.LinkByName(bridge)
	if err == nil {
		in = br.Attrs().Index
	} else if !notFound(err) {
		return nil, err
	}
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var names []string
	for _, l := range links {
		if master := l.Attrs().MasterIndex; l.Type() == "veth" && (master == in || master == 0) {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}
