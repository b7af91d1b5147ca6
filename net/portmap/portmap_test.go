package portmap

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/islet-edge/islet/net/nft"
)

var dual = []netip.Addr{netip.MustParseAddr("10.42.0.2"), netip.MustParseAddr("fd00::2")}

func TestPorts(t *testing.T) {
	for _, c := range []struct {
		name string
		m    Mapping
		pod  []netip.Addr
		want int    // number of ports
		err  string // part of the error text
	}{
		{"both families", Mapping{HostPort: 80, ContainerPort: 8080}, dual, 2, ""},
		{"no host port", Mapping{ContainerPort: 8080}, dual, 0, ""},
		{"host IP of one family", Mapping{HostPort: 80, ContainerPort: 80, HostIP: "192.0.2.1", Protocol: "UDP"}, dual, 1, ""},
		{"mapped IPv4 is IPv4", Mapping{HostPort: 80, ContainerPort: 80, HostIP: "::ffff:192.0.2.1"}, dual[:1], 1, ""},
		{"0.0.0.0 is IPv4 only", Mapping{HostPort: 80, ContainerPort: 80, HostIP: "0.0.0.0"}, dual, 1, ""},
		{"no such family", Mapping{HostPort: 80, ContainerPort: 80, HostIP: "::1"}, dual[:1], 0, "no address of that family"},
		{"protocol", Mapping{HostPort: 80, ContainerPort: 80, Protocol: "icmp"}, dual, 0, "icmp"},
		{"SCTP", Mapping{HostPort: 80, ContainerPort: 80, Protocol: "sctp"}, dual, 2, ""},
		{"too high", Mapping{HostPort: 65536, ContainerPort: 80}, dual, 0, "out of range"},
		{"negative", Mapping{HostPort: -1, ContainerPort: 80}, dual, 0, "out of range"},
		{"no container port", Mapping{HostPort: 80}, dual, 0, "out of range"},
		{"zone", Mapping{HostPort: 80, ContainerPort: 80, HostIP: "fe80::1%eth0"}, dual, 0, "not an IP"},
	} {
		got, err := Ports("pod", []Mapping{c.m}, c.pod)
		if len(got) != c.want || c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// TestPortsOfBothFamilies checks that a hostIP of a family that the pod does not have is accepted if the same port is also open in the
// pod's family.
func TestPortsOfBothFamilies(t *testing.T) {
	four := Mapping{HostPort: 80, ContainerPort: 8080, HostIP: "127.0.0.1"}
	six := Mapping{HostPort: 80, ContainerPort: 8080, HostIP: "::1"}
	for _, c := range []struct {
		name     string
		mappings []Mapping
		pod      []netip.Addr
		want     int // -1 for an error
	}{
		{"both", []Mapping{four, six}, dual, 2},
		{"IPv4 only", []Mapping{six, four}, dual[:1], 1},
		{"IPv6 only", []Mapping{four, six}, dual[1:], 1},
		{"the other one has another port", []Mapping{four, {HostPort: 81, ContainerPort: 8080, HostIP: "::1"}}, dual[:1], -1},
		{"the other one leads elsewhere", []Mapping{four, {HostPort: 80, ContainerPort: 9, HostIP: "::1"}}, dual[:1], -1},
		{"the other one has another protocol", []Mapping{four, {HostPort: 80, ContainerPort: 8080, HostIP: "::", Protocol: "udp"}}, dual[:1], -1},
	} {
		got, err := Ports("pod", c.mappings, c.pod)
		if c.want < 0 && err == nil || c.want >= 0 && (err != nil || len(got) != c.want) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

func TestConflict(t *testing.T) {
	ports := func(m Mapping) []nft.Port {
		p, err := Ports("pod", []Mapping{m}, dual)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	all := ports(Mapping{HostPort: 80, ContainerPort: 80})
	one := ports(Mapping{HostPort: 80, ContainerPort: 80, HostIP: "192.0.2.1"})
	other := ports(Mapping{HostPort: 80, ContainerPort: 80, HostIP: "192.0.2.2"})
	udp := ports(Mapping{HostPort: 80, ContainerPort: 80, Protocol: "udp"})
	for _, c := range []struct {
		a, b []nft.Port
		want bool
	}{{all, all, true}, {all, one, true}, {one, all, true}, {one, other, false}, {one, one, true}, {all, udp, false}} {
		if got := Conflict(c.a, c.b) != nil; got != c.want {
			t.Errorf("%v and %v: %t", c.a, c.b, got)
		}
	}
}

func TestTableSurvivesRestart(t *testing.T) {
	ns, _ := netnstest.New(t)
	dir := filepath.Join(t.TempDir(), "ports")
	table := New(ns, "test", "islet0", dir)
	for i, owner := range []string{"stays", "goes"} {
		if err := table.Add(owner, []Mapping{{HostPort: 80 + i, ContainerPort: 80}}, dual); err != nil {
			t.Fatal(err)
		}
	}
	if err := nft.Remove(ns, "test"); err != nil {
		t.Fatal(err)
	}
	table = New(ns, "test", "islet0", dir)
	if err := errors.Join(table.Load(func(owner string) bool { return owner == "stays" }), table.Repair()); err != nil {
		t.Fatal(err)
	}
	is, err := nft.Load(ns, "test")
	if err != nil || len(is.Ports) != 2 || is.Ports[0].Owner != "stays" {
		t.Errorf("ports are %v, %v", is.Ports, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "goes.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a removed owner: %v", err)
	}
	for range 2 {
		if err := table.Remove("stays"); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("files are left: %v", left)
	}
	if is, _ := nft.Load(ns, "test"); len(is.Ports) != 0 {
		t.Errorf("ports are left: %v", is.Ports)
	}
}
