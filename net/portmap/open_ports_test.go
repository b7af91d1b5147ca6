package portmap

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/islet-edge/islet/net/nft"
)

// TestTableIsWhatIsWanted adds and removes pods concurrently and flushes the firewall several times. In the end the kernel must have
// exactly the rules of the open ports.
func TestTableIsWhatIsWanted(t *testing.T) {
	ns, _ := netnstest.New(t)
	table := New(ns, "islet", "islet0", t.TempDir())
	table.SetNetworks([]netip.Prefix{netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix("fd00::/64")})
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		var wg sync.WaitGroup
		for _, i := range random.Perm(40)[:8] {
			add, both := random.IntN(3) > 0, random.IntN(2) > 0
			wg.Go(func() {
				owner := fmt.Sprint("pod", i)
				if !add {
					if err := table.Remove(owner); err != nil {
						t.Error(err)
					}
					return
				}
				pod := []netip.Addr{netip.AddrFrom4([4]byte{10, 42, 0, byte(i + 2)})}
				if both {
					pod = append(pod, netip.MustParseAddr(fmt.Sprintf("fd00::%x", i+2)))
				}
				mappings := []Mapping{{HostPort: 8000 + i, ContainerPort: 80}, {HostPort: 9000 + i, ContainerPort: 81, Protocol: "udp", HostIP: "192.0.2.1"}}
				if err := table.Add(owner, mappings, pod); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		switch round % 10 {
		case 4:
			fatal(t, nft.Remove(ns, "islet"))
		case 7:
			fatal(t, nft.Remove(ns, "islet"))
			fatal(t, table.Repair())
		}
		if round%10 != 4 {
			compare(t, ns, table)
		}
	}
	fatal(t, table.Clean())
	if left, err := nft.Load(ns, "islet"); err != nil || len(left.Ports)+len(left.Local)+len(left.Masquerade) > 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
}

func compare(t *testing.T, ns netns.NS, table *Table) {
	t.Helper()
	is, err := nft.Load(ns, "islet")
	fatal(t, err)
	table.mu.Lock()
	var want []nft.Port
	for _, ports := range table.ports {
		want = append(want, ports...)
	}
	table.mu.Unlock()
	for _, list := range [][]nft.Port{is.Ports, want} {
		slices.SortFunc(list, func(a, b nft.Port) int {
			return cmp.Or(cmp.Compare(a.HostPort, b.HostPort), a.To.Compare(b.To))
		})
	}
	if !slices.Equal(is.Ports, want) {
		t.Errorf("the kernel has %v, want %v", is.Ports, want)
	}
	if len(is.Local) != 2 || len(is.Masquerade) != 2 {
		t.Errorf("networks are %v and %v", is.Local, is.Masquerade)
	}
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
