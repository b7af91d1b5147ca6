package bridge_test

import (
	"testing"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/vishvananda/netlink"
)

// formerNode creates a network namespace with the interfaces that k3s leaves behind: a bridge with the gateway address of the pods, a VXLAN
// interface on the uplink, and the dummy interface of kube-proxy.
func formerNode(t *testing.T) (netns.NS, *netlink.Handle) {
	t.Helper()
	ns, _ := netnstest.New(t)
	h, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	named := func(name string) netlink.LinkAttrs {
		a := netlink.NewLinkAttrs()
		a.Name = name
		return a
	}
	wan := &netlink.Veth{LinkAttrs: named("wan0"), PeerName: "far"}
	add(t, h, wan, "192.0.2.1/24")
	add(t, h, &netlink.Bridge{LinkAttrs: named("cni0")}, "10.42.0.1/24")
	add(t, h, &netlink.Vxlan{LinkAttrs: named("flannel.1"), VxlanId: 1, VtepDevIndex: index(t, h, "wan0"), Port: 8472}, "10.42.0.0/32")
	add(t, h, &netlink.Dummy{LinkAttrs: named("kube-ipvs0")}, "10.43.0.1/32")
	return ns, h
}

func add(t *testing.T, h *netlink.Handle, l netlink.Link, address string) {
	t.Helper()
	if err := h.LinkAdd(l); err != nil {
		t.Skipf("the kernel cannot make a %s: %v", l.Type(), err)
	}
	a, err := netlink.ParseAddr(address)
	if err == nil {
		err = h.AddrAdd(l, a)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func index(t *testing.T, h *netlink.Handle, name string) int {
	t.Helper()
	l, err := h.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Index
}

func surveyed(t *testing.T, ns netns.NS) map[string]bridge.Interface {
	t.Helper()
	list, err := bridge.ListInterfaces(ns)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bridge.Interface{}
	for _, i := range list {
		out[i.Name] = i
	}
	return out
}

func TestRemoveUnused(t *testing.T) {
	ns, h := formerNode(t)
	found := surveyed(t, ns)
	if b := found["cni0"]; b.Kind != "bridge" || b.Users != 0 || len(b.Addresses) != 1 || b.Addresses[0].String() != "10.42.0.1/24" {
		t.Errorf("cni0 is %+v", b)
	}
	if found["wan0"].Users != 1 || found["flannel.1"].Kind != "vxlan" || found["kube-ipvs0"].Kind != "dummy" {
		t.Errorf("found %+v", found)
	}
	if err := bridge.RemoveUnused(ns, "wan0", found["wan0"].Index); err == nil {
		t.Error("removed the parent of another interface")
	}
	for _, name := range []string{"cni0", "flannel.1", "kube-ipvs0"} {
		if err := bridge.RemoveUnused(ns, name, found[name].Index+1000); err == nil {
			t.Errorf("removed another %s than the surveyed one", name)
		}
		if err := bridge.RemoveUnused(ns, name, found[name].Index); err != nil {
			t.Error(err)
		}
	}
	for name := range surveyed(t, ns) {
		if name == "cni0" || name == "flannel.1" || name == "kube-ipvs0" {
			t.Errorf("%s is still there", name)
		}
	}
	_ = h
}

// TestBridgeWithPortsStays checks that a bridge is kept if a pod was connected to it between the survey and the removal.
func TestBridgeWithPortsStays(t *testing.T) {
	ns, h := formerNode(t)
	before := surveyed(t, ns)["cni0"]
	cni0, err := h.LinkByName("cni0")
	if err != nil {
		t.Fatal(err)
	}
	far, err := h.LinkByName("far")
	if err == nil {
		err = h.LinkSetMaster(far, cni0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := bridge.RemoveUnused(ns, "cni0", before.Index); err == nil {
		t.Error("removed a bridge with a port")
	}
	after := surveyed(t, ns)
	if after["cni0"].Users != 1 || !after["far"].Port {
		t.Errorf("cni0 is %+v, its port %+v", after["cni0"], after["far"])
	}
}
