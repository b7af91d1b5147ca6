package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/islet-edge/islet/net/netns"
	"github.com/vishvananda/netlink"
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

// Attach creates the veth pair and configures both ends. On failure it removes the pair. It visits the pod's namespace once, and sends as
// few requests as possible:
//
//	node: create the pair, with the pod's end in its namespace and the node's end on the bridge --> settings of the node's end
//	pod:  loopback up, interface up, addresses, routes
func Attach(host, pod netns.NS, p Port) (err error) {
	h, err := host.Socket()
	if err != nil {
		return err
	}
	defer h.Close()
	created := false
	defer func() {
		if err != nil && created {
			err = errors.Join(err, h.Send(deletion(p.Host)))
		}
	}()
	w := watchFor(p.Addresses)
	defer w.close()
	err = pod.Visit(func(namespace int) error {
		in, err := w.openSocket(pod)
		if err != nil {
			return err
		}
		err = withDefaults(p.ip6(), func() error {
			err := h.Send(p.creation(namespace))
			created = err == nil
			return err
		})
		if err != nil {
			return err
		}
		index, err := h.Index(p.Host)
		if err != nil {
			return err
		}
		if err := h.Send(p.portSettings(index)...); err != nil {
			return err
		}
		if err := p.configureInterface(in); err != nil {
			return fmt.Errorf("configure %s of the pod: %w", p.Interface, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := evaluateCarriers(h.Fd(), p.Host, p.Bridge.Attrs().Name); err != nil {
		return err
	}
	return w.waitUsable()
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

// withDefaults sets the sysctls for new interfaces in the namespace of the current thread, lets the caller create one interface there, and
// restores the sysctls. This is much faster than writing disable_ipv6 of an existing interface. The kernel restarts such a write while
// another network change holds a lock. When a hundred pods started, these restarts took a quarter of the agent's CPU time.
func withDefaults(defaults []netns.Sysctl, create func() error) error {
	before, err := netns.SwapHere(defaults...)
	if err == nil {
		err = create()
	}
	_, failed := netns.SwapHere(before...)
	return errors.Join(err, failed)
}

// configureInterface sets up the pod's interface and the loopback interface, through a socket in the pod's namespace.
func (p Port) configureInterface(in *netns.Socket) error {
	index, err := in.Index(p.Interface)
	if err != nil {
		return err
	}
	requests := []netns.Request{loopbackUp(), upRequest(index, "set it up")}
	for _, a := range p.Addresses {
		requests = append(requests, addressRequest(index, a, p.DAD))
	}
	for _, r := range p.Routes {
		requests = append(requests, r.request(index))
	}
	return in.Send(requests...)
}

// SetLoopbackUp brings up the loopback interface of a namespace.
func SetLoopbackUp(ns netns.NS) error {
	s, err := ns.Socket()
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Send(loopbackUp())
}

// Detach removes a veth pair, given the name of one end. A missing pair is not an error, because the kernel may have removed it together
// with the pod's namespace. The kernel removes the addresses and routes of both ends.
func Detach(ns netns.NS, name string) error {
	s, err := ns.Socket()
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Send(deletion(name))
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
