package bridge_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/vishvananda/netlink"
)

// TestWorkOfAttach checks that the pod's network is set up in one visit to its namespace, with one socket on each side, and removed with
// one request. These numbers determine a part of the agent's CPU time for each pod, and do not depend on the machine.
func TestWorkOfAttach(t *testing.T) {
	for name, c := range map[string]struct {
		addresses []string
		pod       int64 // requests in the pod's namespace: loopback, interface, an address and a route for each family
	}{
		"IPv4":       {[]string{"10.42.0.7/24"}, 4},
		"dual stack": {[]string{"10.42.0.7/24", "fd00:10:42::7/64"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			var onNode, inPod netns.Counts
			node, _ := netnstest.New(t)
			pod, _ := netnstest.New(t)
			port := bridge.Port{Host: "isl0", Interface: "eth0", MTU: 1400, Hairpin: true}
			config := bridge.Config{Name: "islet0"}
			for _, a := range c.addresses {
				p := netip.MustParsePrefix(a)
				gateway := p.Masked().Addr().Next()
				everywhere, _ := gateway.Prefix(0)
				config.Addresses = append(config.Addresses, netip.PrefixFrom(gateway, p.Bits()))
				port.Addresses = append(port.Addresses, p)
				port.Routes = append(port.Routes, bridge.Route{Dst: everywhere.Masked(), Gateway: gateway})
			}
			port.MAC = bridge.MAC(port.Addresses[0].Addr())
			var err error
			if port.Bridge, err = bridge.Ensure(node, config); err != nil {
				t.Fatal(err)
			}
			if err := bridge.Attach(node.Counted(&onNode), pod.Counted(&inPod), port); err != nil {
				t.Fatal(err)
			}
			// On the node: create the pair, disable automatic addresses, and set the hairpin mode.
			compareCounts(t, "the node", &onNode, [4]int64{1, 1, 2, 3})
			compareCounts(t, "the pod's namespace", &inPod, [4]int64{1, 1, 1, c.pod})
			checkAttached(t, node, pod, port)

			if err := bridge.Detach(node.Counted(&onNode), port.Host); err != nil {
				t.Fatal(err)
			}
			compareCounts(t, "the node, with the end", &onNode, [4]int64{2, 2, 3, 4})
			if err := bridge.Detach(node, port.Host); err != nil {
				t.Errorf("remove a pair that is gone: %v", err)
			}
		})
	}
}

// compareCounts compares the numbers of visits, sockets, sends and requests.
func compareCounts(t *testing.T, where string, c *netns.Counts, want [4]int64) {
	t.Helper()
	if got := [4]int64{c.Visits.Load(), c.Sockets.Load(), c.Sends.Load(), c.Requests.Load()}; got != want {
		t.Errorf("%s: visits, sockets, sends and requests are %d, want %d", where, got, want)
	}
}

// checkAttached checks both ends of the pair and the routes of the pod.
func checkAttached(t *testing.T, node, pod netns.NS, p bridge.Port) {
	t.Helper()
	if right, err := bridge.IsAttached(node, pod, p); !right || err != nil {
		t.Errorf("the pod is not attached: %t, %v", right, err)
	}
	h, err := node.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	end, err := h.LinkByName(p.Host)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := h.LinkGetProtinfo(end)
	if err != nil || !settings.Hairpin || end.Attrs().MTU != p.MTU {
		t.Errorf("the node's end: %+v, MTU %d, %v", settings, end.Attrs().MTU, err)
	}
	in, err := pod.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	link, err := in.LinkByName(p.Interface)
	if err != nil {
		t.Fatal(err)
	}
	if a := link.Attrs(); a.MTU != p.MTU || a.HardwareAddr.String() != p.MAC.String() {
		t.Errorf("the pod's end has MTU %d and address %s", a.MTU, a.HardwareAddr)
	}
	for _, r := range p.Routes {
		family := netlink.FAMILY_V4
		if r.Gateway.Is6() {
			family = netlink.FAMILY_V6
		}
		filter := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: r.Gateway.AsSlice()}
		routes, err := in.RouteListFiltered(family, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_GW)
		if err != nil || len(routes) != 1 || !routes[0].Gw.Equal(r.Gateway.AsSlice()) {
			t.Errorf("routes by %s: %v, %v", r.Gateway, routes, err)
		}
	}
	// The pod must not keep the settings that apply only while its interface is created.
	differing, err := pod.DifferingSysctls(netns.Sysctl{Name: "ipv6/conf/default/disable_ipv6", Value: "0"},
		netns.Sysctl{Name: "ipv6/conf/default/accept_dad", Value: "1"})
	if err != nil || len(differing) > 0 {
		t.Errorf("sysctls: %v, %v", differing, err)
	}
}

// TestFailedAttach checks that a failure leaves no interface behind: the bridge is gone, or a route has no usable gateway.
func TestFailedAttach(t *testing.T) {
	node, _ := netnstest.New(t)
	pod, _ := netnstest.New(t)
	h, err := node.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	address := netip.MustParsePrefix("10.42.0.7/24")
	right := bridge.Port{Host: "isl0", Interface: "eth0", Addresses: []netip.Prefix{address}}
	if right.Bridge, err = bridge.Ensure(node, bridge.Config{Name: "islet0"}); err != nil {
		t.Fatal(err)
	}
	noGateway, noBridge := right, right
	noGateway.Routes = []bridge.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1")}}
	noBridge.Bridge = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "islet1", Index: 4711}}
	for name, p := range map[string]bridge.Port{"gateway": noGateway, "bridge": noBridge} {
		if err := bridge.Attach(node, pod, p); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := h.LinkByName(p.Host); !bridge.NotFound(err) {
			t.Errorf("%s: the interface remains: %v", name, err)
		}
	}
	for range 2 { // a second pair with the same name is an error, and leaves the first one as it is
		err = bridge.Attach(node, pod, right)
	}
	if is, failed := bridge.IsAttached(node, pod, right); err == nil || !is || failed != nil {
		t.Errorf("a second pair: %v; attached: %t, %v", err, is, failed)
	}
}

// TestMissingPorts compares the ports of a bridge with names of which some are not ports, for few names and for many.
func TestMissingPorts(t *testing.T) {
	node, _ := netnstest.New(t)
	pod, _ := netnstest.New(t)
	br, err := bridge.Ensure(node, bridge.Config{Name: "islet0"})
	if err != nil {
		t.Fatal(err)
	}
	h, err := node.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var names []string
	for i := range 8 {
		p := bridge.Port{Bridge: br, Host: fmt.Sprint("isl", i), Interface: fmt.Sprint("eth", i)}
		if err := bridge.Attach(node, pod, p); err != nil {
			t.Fatal(err)
		}
		names = append(names, p.Host)
	}
	link := func(name string) netlink.Link {
		l, err := h.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if err := errors.Join(h.LinkDel(link("isl1")), h.LinkSetDown(link("isl2")), h.LinkSetNoMaster(link("isl3"))); err != nil {
		t.Fatal(err)
	}
	want := []string{"isl1", "isl2", "isl3"}
	for number := range len(names) + 1 {
		missing, err := bridge.MissingPorts(node, "islet0", names[:number])
		if expected := want[:max(0, min(number-1, len(want)))]; err != nil || !slices.Equal(missing, expected) {
			t.Errorf("of %d ports: missing %v, want %v: %v", number, missing, expected, err)
		}
	}
}
