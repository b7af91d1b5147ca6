package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/ipam"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/islet-edge/islet/net/nft"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestDualStack(t *testing.T) {
	w := newWorld(t)
	check(t, w.node.Set(netns.Sysctl{Name: "ipv6/conf/wan0/accept_ra", Value: "1"}))
	n := w.network(t, cidrs("10.42.0.0/24", "fd00:10:42::/64"))
	check(t, n.Reconcile(t.Context(), nil))
	web, other := w.pod(t, n, "web", tcp(8080, 80)), w.pod(t, n, "other")
	if fmt.Sprint(web.addrs) != "[10.42.0.2 fd00:10:42::2]" {
		t.Errorf("addresses are %v", web.addrs)
	}
	w.talk(t, web, other, "10.42.0.1", "fd00:10:42::1")
	wantAnswer(t, w.node, "tcp", "::1", 8080, "web sees fd00:10:42::1")
	check(t, w.node.Do(func() error { // the default route of the node must not expire when the node forwards packets
		is, err := os.ReadFile("/proc/sys/net/ipv6/conf/wan0/accept_ra")
		if string(is) != "2\n" {
			t.Errorf("accept_ra is %q", is)
		}
		return err
	}))
}

// TestWithBridgeNetfilter runs with bridge netfilter, which passes bridged packets through nftables. A node that was prepared for
// kube-proxy has this setting.
func TestWithBridgeNetfilter(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"} {
		if err := w.node.Set(netns.Sysctl{Name: name, Value: "1"}); err != nil {
			t.Skipf("needs br_netfilter: %v", err)
		}
	}
	n := w.network(t, cidrs("10.42.0.0/24", "fd00:10:42::/64"))
	check(t, n.Reconcile(t.Context(), nil))
	w.talk(t, w.pod(t, n, "web", tcp(8080, 80)), w.pod(t, n, "other"), "10.42.0.1", "fd00:10:42::1")
}

func TestSetupAgain(t *testing.T) {
	w := newWorld(t)
	n := w.network(t)
	p := w.pod(t, n, "pod", tcp(8080, 80))
	for _, network := range []*Network{n, w.network(t)} { // in the same agent, and after a restart of the agent
		again, err := network.Setup(t.Context(), p.id, p.path, p.cfg)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(p.addrs) {
			t.Fatalf("again: %v, %v", again, err)
		}
	}
	serve(t, p.ns, "pod", 80)
	wantAnswer(t, w.outside, "tcp", "192.0.2.1", 8080, "pod sees 192.0.2.2")

	// The pod has lost its address, so its connection is incomplete.
	h, err := p.ns.Netlink()
	check(t, err)
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	check(t, err)
	addr, err := netlink.ParseAddr(p.addrs[0].String() + "/24")
	check(t, err)
	check(t, h.AddrDel(eth0, addr))
	_, err = n.Setup(t.Context(), p.id, p.path, p.cfg)
	check(t, err)
	wantAnswer(t, w.outside, "tcp", "192.0.2.1", 8080, "pod sees 192.0.2.2")

	// The sandbox is set up again in another namespace. The old namespace still exists.
	other, path := netnstest.New(t)
	again, err := n.Setup(t.Context(), p.id, path, p.cfg)
	if err != nil || fmt.Sprint(again) != fmt.Sprint(p.addrs) {
		t.Fatalf("in another namespace: %v, %v", again, err)
	}
	serve(t, other, "other", 80)
	wantAnswer(t, w.outside, "tcp", "192.0.2.1", 8080, "other sees 192.0.2.2")
	check(t, n.Teardown(t.Context(), p.id, path, p.cfg))
	w.clean(t)
}

func TestTeardownOfWhatIsGone(t *testing.T) {
	w := newWorld(t)
	n := w.network(t)
	ns, path, end := netnstest.NewUntilEnd(t)
	_ = ns
	_, err := n.Setup(t.Context(), "pod", path, nil)
	check(t, err)
	end()
	for range 2 {
		check(t, n.Teardown(t.Context(), "pod", path, nil))
	}
	p := w.pod(t, n, "another")
	check(t, bridge.Detach(w.node, vethName(p.id)))
	check(t, n.Teardown(t.Context(), p.id, "", nil))
	check(t, n.Teardown(t.Context(), "never-there", "", nil))
	w.clean(t)
}

func TestSetupFails(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, cidrs("10.42.0.0/30"))
	_, path := netnstest.New(t)
	setup := func(id, path string, ports ...*api.PortMapping) error {
		_, err := n.Setup(t.Context(), id, path, &api.PodSandboxConfig{PortMappings: ports})
		return err
	}
	if err := setup("pod", "/nowhere"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no namespace: %v", err)
	}
	w.clean(t)
	if err := setup("../pod", path); err == nil {
		t.Error("a path as ID is accepted")
	}
	if err := setup("pod", path, &api.PortMapping{HostPort: 80, ContainerPort: 80, HostIp: "localhost"}); err == nil || !strings.Contains(err.Error(), "localhost") {
		t.Errorf("host IP: %v", err)
	}
	if err := setup("pod", path, &api.PortMapping{HostPort: 80, ContainerPort: 80, HostIp: "::1"}); err == nil {
		t.Error("a host port of the other family is accepted")
	}
	w.clean(t)
	check(t, setup("pod", path))
	_, second := netnstest.New(t)
	if err := setup("second", second); !errors.Is(err, ipam.ErrExhausted) {
		t.Errorf("exhausted: %v", err)
	}
	check(t, n.Teardown(t.Context(), "pod", path, nil))
	check(t, setup("second", second)) // the only address is used again
	check(t, n.Teardown(t.Context(), "second", second, nil))
	w.clean(t)

	w.leases.Fail = func(string) error { return errors.New("disk full") }
	if err := setup("pod", path); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("store fails: %v", err)
	}
	w.leases.Fail = nil
	w.clean(t)
}

func TestHostPortIsTaken(t *testing.T) {
	w := newWorld(t)
	n := w.network(t)
	w.pod(t, n, "first", tcp(8080, 80))
	_, path := netnstest.New(t)
	_, err := n.Setup(t.Context(), "second", path, &api.PodSandboxConfig{PortMappings: []*api.PortMapping{{HostPort: 8080, ContainerPort: 80, HostIp: "127.0.0.1"}}})
	if err == nil || !strings.Contains(err.Error(), "host port 8080 is in use by first") {
		t.Errorf("error is %v", err)
	}
	w.pod(t, n, "udp", &api.PortMapping{HostPort: 8080, ContainerPort: 80, Protocol: api.Protocol_UDP})
	check(t, n.Teardown(t.Context(), "first", "", nil))
	w.pod(t, n, "third", tcp(8080, 80))
}

func TestUDPFlowFollowsThePort(t *testing.T) {
	w := newWorld(t)
	n := w.network(t)
	udp := &api.PortMapping{HostPort: 5353, ContainerPort: 53, Protocol: api.Protocol_UDP}
	one := w.pod(t, n, "one", udp)
	serve(t, one.ns, "one", 53)
	ask := w.flow(t, "192.0.2.1:5353")
	if got := ask(); got != "one sees 192.0.2.2" {
		t.Fatal(got)
	}
	check(t, n.Teardown(t.Context(), one.id, one.path, nil))
	two := w.pod(t, n, "two", udp)
	serve(t, two.ns, "two", 53)
	if got := ask(); got != "two sees 192.0.2.2" { // uses the same UDP flow as before
		t.Errorf("after the pod was replaced: %q", got)
	}
}

// TestReconcileAfterPowerLoss creates the remains of a crash at every possible point, and then starts the network.
func TestReconcileAfterPowerLoss(t *testing.T) {
	w := newWorld(t)
	n := w.network(t)
	live := w.pod(t, n, "live", tcp(8080, 80))
	w.pod(t, n, "dead", tcp(8081, 80))
	check(t, w.leases.AddLease(t.Context(), netip.MustParseAddr("10.42.0.77"), "leased-only"))
	noLease := w.pod(t, n, "no-lease")
	check(t, w.leases.ReleaseLeases(t.Context(), noLease.id))
	h, err := w.node.Netlink()
	check(t, err)
	defer h.Close()
	unplugged, err := h.LinkByName(vethName(noLease.id))
	check(t, err)
	check(t, h.LinkSetNoMaster(unplugged))
	check(t, os.WriteFile(filepath.Join(w.dir, "ports", "half.json.tmp"), []byte("{"), 0o600))
	check(t, os.WriteFile(filepath.Join(w.dir, "ports", "half.json"), []byte("{"), 0o600))
	check(t, nft.Remove(w.node, "islet"))
	check(t, w.node.Set(netns.Sysctl{Name: "ipv4/ip_forward", Value: "0"}))

	n = w.network(t)
	check(t, n.Reconcile(t.Context(), []string{live.id}))
	if left := w.links(t); len(left) != 1 || left[0] != vethName(live.id) {
		t.Errorf("interfaces are left: %v", left)
	}
	if left, _ := w.leases.Leases(t.Context()); len(left) != 1 {
		t.Errorf("leases are left: %v", left)
	}
	serve(t, live.ns, "live", 80)
	wantAnswer(t, w.outside, "tcp", "192.0.2.1", 8080, "live sees 192.0.2.2")
	if got := ask(w.outside, "tcp", "192.0.2.1", 8081); !strings.Contains(got, "refused") {
		t.Errorf("the port of the deleted pod: %s", got)
	}
	check(t, n.Reconcile(t.Context(), nil))
	w.clean(t)
}

func TestReadyRepairs(t *testing.T) {
	w := newWorld(t)
	n := w.network(t)
	p := w.pod(t, n, "pod", tcp(8080, 80))
	serve(t, p.ns, "pod", 80)
	check(t, nft.Remove(w.node, "islet"))
	check(t, n.Ready())
	wantAnswer(t, w.outside, "tcp", "192.0.2.1", 8080, "pod sees 192.0.2.2")

	h, err := w.node.Netlink()
	check(t, err)
	defer h.Close()
	br, err := h.LinkByName("islet0")
	check(t, err)
	check(t, h.LinkDel(br))
	check(t, n.Ready())
	_, err = n.Setup(t.Context(), p.id, p.path, p.cfg) // connects the pod again
	check(t, err)
	wantAnswer(t, w.outside, "tcp", "192.0.2.1", 8080, "pod sees 192.0.2.2")

	check(t, n.Teardown(t.Context(), p.id, p.path, p.cfg))
	br, err = h.LinkByName("islet0")
	check(t, err)
	check(t, h.LinkDel(br))
	foreign := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "peer"}
	foreign.Name = "islet0"
	check(t, h.LinkAdd(foreign))
	if err := n.Ready(); err == nil || !strings.Contains(err.Error(), "is a veth") {
		t.Errorf("a foreign interface of the name: %v", err)
	}
}

func TestSetPodCIDRs(t *testing.T) {
	w := newWorld(t)
	n := w.network(t)
	old := w.pod(t, n, "old")
	check(t, n.SetPodCIDRs(t.Context(), []netip.Prefix{netip.MustParsePrefix("10.99.1.0/24"), netip.MustParsePrefix("fd00:99::/64")}))
	fresh := w.pod(t, n, "fresh", tcp(8080, 80))
	if fmt.Sprint(fresh.addrs) != "[10.99.1.2 fd00:99::2]" {
		t.Errorf("addresses are %v", fresh.addrs)
	}
	serve(t, w.outside, "outside", 80)
	serve(t, old.ns, "old", 80)
	for _, p := range []*pod{old, fresh} {
		wantAnswer(t, p.ns, "tcp", "192.0.2.2", 80, "outside sees 192.0.2.1")
	}
	wantAnswer(t, fresh.ns, "tcp", old.addrs[0].String(), 80, "old sees 10.99.1.2")
	check(t, n.Teardown(t.Context(), old.id, old.path, old.cfg))
	check(t, n.Ready())
	h, err := w.node.Netlink()
	check(t, err)
	defer h.Close()
	br, err := h.LinkByName("islet0")
	check(t, err)
	addrs, err := h.AddrList(br, netlink.FAMILY_V4)
	check(t, err)
	if len(addrs) != 1 || addrs[0].IP.String() != "10.99.1.1" {
		t.Errorf("the bridge has %v", addrs)
	}
	if err := n.SetPodCIDRs(t.Context(), []netip.Prefix{netip.MustParsePrefix("10.99.1.0/31")}); err == nil {
		t.Error("a CIDR without room is accepted")
	}
}

// TestPodCannotReachLoopbackOfTheNode sends packets to 127.0.0.1 from a pod through the bridge. route_localnet is set, so the packets would
// arrive without the firewall rule that drops them.
func TestPodCannotReachLoopbackOfTheNode(t *testing.T) {
	w := newWorld(t)
	n := w.network(t)
	p := w.pod(t, n, "pod")
	serve(t, w.node, "node", 10250)
	check(t, p.ns.Set(netns.Sysctl{Name: "ipv4/conf/all/route_localnet", Value: "1"}, netns.Sysctl{Name: "ipv4/conf/all/rp_filter", Value: "0"}))
	h, err := p.ns.Netlink()
	check(t, err)
	defer h.Close()
	routes, err := h.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
	check(t, err)
	for _, r := range routes {
		if r.Dst != nil && r.Dst.IP.IsLoopback() {
			check(t, h.RouteDel(&r))
		}
	}
	wantAnswer(t, p.ns, "tcp", "10.42.0.1", 10250, "node sees 10.42.0.2")
	if got := askFor(3*time.Second, p.ns, "tcp", "127.0.0.1", 10250); !strings.Contains(got, "timeout") {
		t.Errorf("the node's loopback answers: %s", got)
	}
}

func TestConcurrentSetupAndTeardown(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, cidrs("10.42.0.0/24", "fd00:10:42::/64"))
	check(t, n.Reconcile(t.Context(), nil))
	const pods = 200
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[netip.Addr]string{}
	for i := range pods {
		id := fmt.Sprint("pod", i)
		_, path := netnstest.New(t)
		cfg := &api.PodSandboxConfig{}
		if i%4 == 0 {
			cfg.PortMappings = []*api.PortMapping{tcp(int32(8000+i), 80)}
		}
		wg.Go(func() {
			addrs, err := n.Setup(context.Background(), id, path, cfg)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			for _, a := range addrs {
				if seen[a] != "" {
					t.Errorf("%s and %s have %s", id, seen[a], a)
				}
				seen[a] = id
			}
			mu.Unlock()
			if i%2 == 0 {
				if err := n.Teardown(context.Background(), id, path, cfg); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(w.links(t)); got != pods/2 {
		t.Errorf("%d interfaces, want %d", got, pods/2)
	}
	table, err := nft.Load(w.node, "islet")
	if err != nil || len(table.Ports) != 0 {
		t.Errorf("ports: %v, %v", table.Ports, err)
	}
	for i := range pods {
		wg.Go(func() {
			if err := n.Teardown(context.Background(), fmt.Sprint("pod", i), "", nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.clean(t)
}
