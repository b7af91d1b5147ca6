package notice

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
)

// TestNotices makes a change of each kind. It waits for the notice of each change.
func TestNotices(t *testing.T) {
	ns, _ := netnstest.New(t)
	l, err := Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan Notice, 1000), make(chan error, 1)
	go func() { ended <- l.Run(ctx, func(n Notice) { heard <- n }) }()
	h, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	link := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	link.Name = "br"
	address, _ := netlink.ParseAddr("192.0.2.1/24")
	_, everywhere, _ := net.ParseCIDR("0.0.0.0/0")
	for _, step := range []struct {
		do   func() error
		want func(Notice) bool
	}{
		{func() error { return h.LinkAdd(link) }, func(n Notice) bool { return n.Kind == Link && n.Name == "br" && !n.Gone && !n.Up }},
		{func() error { return h.LinkSetUp(link) }, func(n Notice) bool { return n.Kind == Link && n.Index == link.Index && n.Up }},
		{func() error { return h.AddrAdd(link, address) }, func(n Notice) bool {
			return n.Kind == Address && !n.Gone && n.Index == link.Index && n.Addr == netip.MustParseAddr("192.0.2.1")
		}},
		{func() error {
			return h.RouteAdd(&netlink.Route{LinkIndex: link.Index, Dst: everywhere})
		}, func(n Notice) bool { return n.Kind == Route && n.Default && !n.Gone && n.Index == link.Index }},
		{func() error { return h.AddrDel(link, address) }, func(n Notice) bool { return n.Kind == Route && n.Gone && n.Index == link.Index }},
		// A namespace inherits settings of its creator, so forwarding may be enabled. It is disabled first.
		{func() error {
			return ns.Set(netns.Sysctl{Name: "ipv4/ip_forward", Value: "0"}, netns.Sysctl{Name: "ipv4/ip_forward", Value: "1"})
		}, func(n Notice) bool { return n.Kind == Sysctl && n.Index < 0 }},
		{func() error {
			return ns.Set(netns.Sysctl{Name: "ipv4/conf/br/forwarding", Value: "0"}, netns.Sysctl{Name: "ipv4/conf/br/forwarding", Value: "1"})
		}, func(n Notice) bool { return n.Kind == Sysctl && n.Index == link.Index }},
		{func() error { return h.LinkDel(link) }, func(n Notice) bool { return n.Kind == Link && n.Name == "br" && n.Gone }},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		for !step.want(<-heard) {
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// FuzzParse parses arbitrary messages, including messages that the kernel does not send.
func FuzzParse(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, parse := range []func(uint16, []byte) (Notice, bool){parseRoute, parseRuleset} {
			eachMessage(b, func(kind uint16, data []byte) { parse(kind, data) })
			for kind := range uint16(0x60) {
				parse(kind, b)
				parse(kind|0xa00, b)
			}
		}
	})
}
