package portmap

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/islet-edge/islet/internal/growthtest"
	"github.com/islet-edge/islet/net/nft"
)

// TestConflictGrowth checks that the comparison of the ports of two pods takes a time that is proportional to the number of ports.
func TestConflictGrowth(t *testing.T) {
	portsOf := func(network byte, count int) []nft.Port {
		ports := make([]nft.Port, count)
		for i := range ports {
			host := netip.AddrFrom4([4]byte{10, network, byte(i >> 8), byte(i)})
			ports[i] = nft.Port{Protocol: 6, HostIP: host, HostPort: 80, To: netip.MustParseAddrPort("10.42.0.7:80")}
		}
		return ports
	}
	growthtest.Linear(t, 4000, func(n int) {
		if err := Conflict(portsOf(1, n), portsOf(2, n)); err != nil {
			t.Error(err)
		}
	})
}

// TestConflictOfPairs checks that Conflict returns the same result as a comparison of all pairs of ports.
func TestConflictOfPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	hosts := []netip.Addr{{}, netip.IPv4Unspecified(), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	hosts6 := []netip.Addr{{}, netip.IPv6Unspecified(), netip.MustParseAddr("fd00::1")}
	somePorts := func() []nft.Port {
		ports := make([]nft.Port, r.IntN(4))
		for i := range ports {
			ports[i] = nft.Port{Protocol: uint8(6 + 11*r.IntN(2)), HostPort: uint16(1 + r.IntN(3))}
			if r.IntN(3) > 0 {
				ports[i].HostIP, ports[i].To = hosts[r.IntN(len(hosts))], netip.MustParseAddrPort("10.42.0.7:80")
			} else {
				ports[i].HostIP, ports[i].To = hosts6[r.IntN(len(hosts6))], netip.MustParseAddrPort("[fd00::7]:80")
			}
		}
		return ports
	}
	anyHost := func(p nft.Port) bool { return !p.HostIP.IsValid() || p.HostIP.IsUnspecified() }
	for range 5000 {
		a, b, want := somePorts(), somePorts(), false
		for _, p := range a {
			for _, o := range b {
				same := p.Protocol == o.Protocol && p.HostPort == o.HostPort && p.To.Addr().Is4() == o.To.Addr().Is4()
				want = want || same && (anyHost(p) || anyHost(o) || p.HostIP == o.HostIP)
			}
		}
		if err := Conflict(a, b); (err != nil) != want {
			t.Fatalf("%v and %v: %v", a, b, err)
		}
	}
}
