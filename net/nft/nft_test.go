package nft

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
)

func sample(name string, pods int) Table {
	t := Table{Name: name}
	for _, p := range []string{"10.42.0.0/24", "fd00:10:42::/64"} {
		prefix := netip.MustParsePrefix(p)
		t.Local = append(t.Local, prefix)
		addr := prefix.Addr().Next()
		for i := range pods {
			addr = addr.Next()
			owner := fmt.Sprint("pod", i)
			t.Masquerade = append(t.Masquerade, Source{Owner: owner, Prefix: netip.PrefixFrom(addr, addr.BitLen())})
			t.Ports = append(t.Ports, Port{Owner: owner, Protocol: 6, HostPort: uint16(8000 + i), To: netip.AddrPortFrom(addr, 80)})
		}
	}
	return t
}

func TestLoadReadsWhatReplaceWrote(t *testing.T) {
	ns, _ := netnstest.New(t)
	want := sample("test", 3)
	want.Ports[2].HostIP = netip.MustParseAddr("192.0.2.1")
	for range 2 {
		if err := Replace(ns, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(ns, "test")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(sorted(got), sorted(want)) {
		t.Errorf("got  %+v\nwant %+v", sorted(got), sorted(want))
	}
}

// TestSockets checks that each operation opens one socket, also if a table does not exist. A check of the table has a dozen requests. The
// library opens a socket for each of them if it is not told otherwise.
func TestSockets(t *testing.T) {
	ns, _ := netnstest.New(t)
	var counts netns.Counts
	ns = ns.Counted(&counts)
	for i, do := range []func() error{
		func() error { _, err := Load(ns, "test"); return err },
		func() error { return Replace(ns, sample("test", 3)) },
		func() error { _, err := Load(ns, "test"); return err },
		func() error { _, err := PrintOf(ns, "test"); return err },
		func() error { return SwapPorts(ns, "test", sample("test", 3).Ports[:1], nil) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if got := counts.Sockets.Swap(0); got != 1 {
			t.Errorf("operation %d opened %d sockets", i, got)
		}
	}
}

func sorted(t Table) map[string]bool {
	list := map[string]bool{}
	for _, s := range t.Masquerade {
		list[fmt.Sprint(s)] = true
	}
	for _, p := range t.Local {
		list[fmt.Sprint(p)] = true
	}
	for _, p := range t.Ports {
		list[fmt.Sprint(p)] = true
	}
	return list
}

func TestChangeEqualsReplace(t *testing.T) {
	ns, _ := netnstest.New(t)
	three := sample("test", 3)
	moved := sample("test", 3)
	moved.Ports[1].To = netip.MustParseAddrPort("10.42.0.9:81")
	moved.Masquerade = moved.Masquerade[1:]
	only4 := Table{Name: "test", Local: three.Local[:1]}
	steps := []Table{{Name: "test"}, three, sample("test", 0), sample("test", 700), moved, three, only4, three, {Name: "test"}}
	for i, to := range steps[1:] {
		if err := UpdateTables(ns, steps[i], to); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		got, err := Load(ns, "test")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(sorted(got), sorted(to)) {
			t.Errorf("step %d: got  %+v\nwant %+v", i, got, to)
		}
		if there, err := Exists(ns, to); !there || err != nil {
			t.Errorf("step %d: exists: %t, %v", i, there, err)
		}
	}
	// After another program has removed the table, the next change creates it again.
	if err := Replace(ns, three); err != nil {
		t.Fatal(err)
	}
	if err := Remove(ns, "test"); err != nil {
		t.Fatal(err)
	}
	if there, _ := Exists(ns, three); there {
		t.Error("removed, but exists")
	}
	if err := UpdateTables(ns, three, moved); err != nil {
		t.Fatal(err)
	}
	if got, _ := Load(ns, "test"); !reflect.DeepEqual(sorted(got), sorted(moved)) {
		t.Errorf("after removal: %+v", got)
	}
}

func BenchmarkWrite(b *testing.B) {
	ns, _ := netnstest.New(b)
	list := sample("test", 30)
	less := list
	less.Ports = list.Ports[1:]
	b.Run("Replace", func(b *testing.B) {
		for b.Loop() {
			if err := Replace(ns, list); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Change", func(b *testing.B) {
		for from, to := list, less; b.Loop(); from, to = to, from {
			if err := UpdateTables(ns, from, to); err != nil {
				b.Fatal(err)
			}
		}
	})
}
