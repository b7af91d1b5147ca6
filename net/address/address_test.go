package address

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
)

// host creates a network namespace with three veth pairs. It returns the namespace and a function that runs ip commands in it.
func host(t *testing.T, lines ...string) (netns.NS, func(lines ...string)) {
	t.Helper()
	ns, path := netnstest.New(t)
	do := func(lines ...string) {
		t.Helper()
		for _, line := range lines {
			if out, err := exec.Command("nsenter", append([]string{"--net=" + path, "ip"}, strings.Fields(line)...)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", line, err, out)
			}
		}
	}
	for _, link := range []string{"eth0", "wwan0", "islet0"} {
		do("link add "+link+" type veth peer name x"+link, "link set "+link+" up", "link set x"+link+" up")
	}
	do("addr add 10.42.0.1/24 dev islet0")
	do(lines...)
	return ns, do
}

func TestFind(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lines  []string
		before string
		want   string
	}{
		{"nothing", nil, "", "[]"},
		{"no default route", []string{"addr add 192.168.1.9/24 dev wwan0", "addr add 192.168.0.9/24 dev eth0"}, "", "[192.168.0.9]"},
		{"no default route any more", []string{"addr add 192.168.1.9/24 dev wwan0", "addr add 192.168.0.9/24 dev eth0"}, "192.168.1.9", "[192.168.1.9]"},
		{"the default route's link", []string{"addr add 192.168.0.9/24 dev eth0", "addr add 192.168.1.9/24 dev wwan0", "route add default via 192.168.1.1"}, "192.168.0.9", "[192.168.1.9]"},
		{"the better of two routes", []string{"addr add 192.168.0.9/24 dev eth0", "addr add 192.168.1.9/24 dev wwan0",
			"route add default via 192.168.1.1 metric 600", "route add default via 192.168.0.1 metric 100"}, "", "[192.168.0.9]"},
		{"the route's source", []string{"addr add 192.168.0.9/24 dev eth0", "addr add 192.168.0.20/24 dev eth0", "route add default via 192.168.0.1 src 192.168.0.20"}, "", "[192.168.0.20]"},
		{"the first of its network", []string{"addr add 192.168.0.20/24 dev eth0", "addr add 192.168.0.9/24 dev eth0", "route add default via 192.168.0.1"}, "", "[192.168.0.20]"},
		{"of equals that of before", []string{"addr add 192.168.0.20/24 dev eth0", "addr add 10.0.0.9/24 dev eth0", "route add default via 192.168.0.1"}, "192.168.0.20", "[192.168.0.20]"},
		{"both families", []string{"addr add 192.168.0.9/24 dev eth0", "route add default via 192.168.0.1",
			"addr add 2001:db8::9/64 dev eth0 nodad", "addr add fd00::9/64 dev eth0 nodad", "-6 route add default via 2001:db8::1 dev eth0"}, "", "[192.168.0.9 2001:db8::9]"},
		{"deprecated", []string{"addr add 2001:db8::1/64 dev eth0 nodad preferred_lft 0", "addr add 2001:db8::9/64 dev eth0 nodad", "-6 route add default via 2001:db8::ff dev eth0"}, "2001:db8::1", "[2001:db8::9]"},
		{"only local ones", []string{"addr add fd00::9/64 dev eth0 nodad"}, "", "[fd00::9]"},
		{"a bridge of containers", []string{"link add docker0 type bridge", "link set docker0 up", "link set xeth0 master docker0",
			"addr add 172.17.0.1/16 dev docker0", "addr add 192.168.0.9/24 dev wwan0"}, "172.17.0.1", "[192.168.0.9]"},
		{"only a bridge of containers", []string{"link add docker0 type bridge", "link set docker0 up", "addr add 172.17.0.1/16 dev docker0"}, "", "[172.17.0.1]"},
		{"no network yet", []string{"link add docker0 type bridge", "link set docker0 up", "addr add 172.17.0.1/16 dev docker0"}, "192.168.0.9", "[]"},
		{"a bridge on the way out", []string{"link add br0 type bridge", "link set br0 up", "addr add 172.17.0.1/16 dev br0", "route add default via 172.17.0.9"}, "", "[172.17.0.1]"},
		{"the pods' bridge", []string{"route add default via 10.42.0.2"}, "", "[]"},
		{"a link that is down", []string{"addr add 192.168.0.9/24 dev eth0", "link set eth0 down"}, "192.168.0.9", "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns, _ := host(t, tt.lines...)
			var before []netip.Addr
			if tt.before != "" {
				before = append(before, netip.MustParseAddr(tt.before))
			}
			got, err := Find(ns, before, "islet0")
			if err != nil || fmt.Sprint(got) != tt.want {
				t.Errorf("found %v, %v, not %s", got, err, tt.want)
			}
		})
	}
}

// TestInnerBridges checks that a bridge with a port to the outside, such as a network card or a VLAN, does not count as a bridge of
// containers.
func TestInnerBridges(t *testing.T) {
	port := func(bridge int) netlink.LinkAttrs { return netlink.LinkAttrs{Index: 10, MasterIndex: bridge} }
	links := []netlink.Link{
		&netlink.Veth{LinkAttrs: port(2)}, &netlink.Veth{LinkAttrs: port(3)}, &netlink.Device{LinkAttrs: port(3)}, &netlink.Tuntap{LinkAttrs: port(4)},
		&netlink.Vlan{LinkAttrs: port(5)}, &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 7}},
	}
	for index := 1; index <= 5; index++ {
		links = append(links, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Index: index}})
	}
	if got := innerBridges(links); len(got) != 3 || !got[1] || !got[2] || !got[4] {
		t.Errorf("%v", got)
	}
}

// TestTemporary checks that a temporary (privacy) address is never returned. The kernel itself would use such an address as a source
// address.
func TestTemporary(t *testing.T) {
	ns, do := host(t)
	if err := ns.Set(netns.Sysctl{Name: "ipv6/conf/eth0/use_tempaddr", Value: "2"}); err != nil {
		t.Skip("this kernel makes no temporary addresses:", err)
	}
	do("addr add 2001:db8::a/64 dev eth0 mngtmpaddr nodad", "-6 route add default via 2001:db8::1 dev eth0")
	h, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	all, err := h.AddrList(nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	temporary := 0
	for _, a := range all {
		if a.Flags&1 != 0 {
			temporary++
		}
	}
	if temporary == 0 {
		t.Skip("this kernel made no temporary address")
	}
	got, err := Find(ns, nil, "islet0")
	if err != nil || fmt.Sprint(got) != "[2001:db8::a]" {
		t.Errorf("found %v, %v", got, err)
	}
}
