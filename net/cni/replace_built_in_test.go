package cni

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/islet-edge/islet/net/nft"
	"github.com/vishvananda/netlink"
)

// run starts Run. The returned channel receives a value for each reported change.
func (w *world) run(t *testing.T, change ...func(*Config)) (*Network, <-chan struct{}) {
	t.Helper()
	news := make(chan struct{}, 100)
	n := w.network(t, append(change, func(c *Config) { c.Changed = func() { news <- struct{}{} } })...)
	done := make(chan error, 1)
	go func() { done <- n.Run(t.Context()) }()
	t.Cleanup(func() { check(t, <-done) })
	return n, news
}

// until waits until the condition holds. It checks the condition after each change.
func until(t *testing.T, news <-chan struct{}, what string, holds func() bool) {
	t.Helper()
	for !holds() {
		select {
		case <-news:
		case <-time.After(patience):
			t.Fatalf("timed out: %s", what)
		}
	}
}

// pristine checks that all objects of the built-in network are removed from the node.
func (w *world) pristine(t *testing.T) {
	t.Helper()
	if installed, err := bridgeExists(w.node, "islet0"); installed || err != nil {
		t.Errorf("the bridge is there (%v)", err)
	}
	everywhere := netip.MustParsePrefix("0.0.0.0/0")
	if there, err := nft.Exists(w.node, nft.Table{Name: "islet", Local: []netip.Prefix{everywhere}}); there || err != nil {
		t.Errorf("the nftables table is there (%v)", err)
	}
}

// flannel returns the conflist that the flannel add-on writes for the podCIDR of the node. The conflist uses built-in plugin types.
func (w *world) flannel() string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [
		{"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true,
		 "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.42.0.0/24"}},
		{"type": "portmap", "capabilities": {"portMappings": true}}]}`, w.dir+"/host-local")
}

func TestBuiltInNetworkIsLaidWhenItIsUsed(t *testing.T) {
	w := newWorld(t)
	check(t, w.node.Set(netns.Sysctl{Name: "ipv4/ip_forward", Value: "0"}))
	n := w.network(t)
	check(t, n.Reconcile(t.Context(), nil))
	check(t, n.Ready())
	check(t, n.SetPodCIDRs(t.Context(), []netip.Prefix{netip.MustParsePrefix("10.43.0.0/24")}))
	check(t, n.CheckPodNetwork())
	w.pristine(t)
	forwards := func() string {
		var is []byte
		check(t, w.node.Do(func() (err error) { is, err = os.ReadFile("/proc/sys/net/ipv4/ip_forward"); return }))
		return string(is)
	}
	if got := forwards(); got != "0\n" {
		t.Errorf("ip_forward is %q before the first pod", got)
	}
	p := w.pod(t, n, "pod")
	if got := forwards(); got != "1\n" || p.addrs[0].String() != "10.43.0.2" {
		t.Errorf("with a pod at %s ip_forward is %q", p.addrs[0], got)
	}
	serve(t, w.outside, "outside", 80)
	wantAnswer(t, p.ns, "tcp", "192.0.2.2", 80, "outside sees 192.0.2.1")
}

// TestConflistTakesOver checks an add-on that is installed while pods have addresses of the built-in network.
func TestConflistTakesOver(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.dir, "etc", "cni", "net.d") // none of these directories exists yet
	n, news := w.run(t, func(c *Config) { c.ConfDir = dir })
	check(t, n.Reconcile(t.Context(), nil))
	web, other := w.pod(t, n, "web", tcp(8080, 80)), w.pod(t, n, "other")
	if n.IsStale(web.id) {
		t.Error("stale without a configuration")
	}
	check(t, os.MkdirAll(dir, 0o755))
	conf := filepath.Join(dir, "10-flannel.conflist")
	check(t, os.WriteFile(conf, []byte(w.flannel()), 0o600))
	until(t, news, "the pods are stale", func() bool { return n.IsStale(web.id) && n.IsStale(other.id) })
	check(t, n.Ready())
	serve(t, web.ns, "web", 80)
	wantAnswer(t, w.outside, "tcp", nodeAddrs[0], 8080, "web sees 192.0.2.2") // the pod keeps its host port while it runs

	check(t, n.Teardown(t.Context(), web.id, web.path, web.cfg))
	_, path := netnstest.New(t)
	if _, err := n.Setup(t.Context(), "early", path, nil); err == nil || n.CheckPodNetwork() == nil {
		t.Errorf("a pod starts on the new network while another is on the old one (%v)", err)
	}
	check(t, n.Teardown(t.Context(), other.id, other.path, other.cfg))
	until(t, news, "pods are admitted", func() bool { return n.CheckPodNetwork() == nil })
	w.pristine(t)
	web, other = w.pod(t, n, "web2", tcp(8080, 80)), w.pod(t, n, "other2")
	if fmt.Sprint(web.addrs, other.addrs) != "[10.42.0.2] [10.42.0.3]" || n.IsStale(web.id) {
		t.Errorf("on the new network: %v %v", web.addrs, other.addrs)
	}
	serve(t, web.ns, "web", 80)
	serve(t, w.node, "node", 81)
	wantAnswer(t, other.ns, "tcp", web.addrs[0].String(), 80, "web sees 10.42.0.3")
	wantAnswer(t, other.ns, "tcp", "10.42.0.1", 81, "node sees 10.42.0.3")
	wantAnswer(t, w.outside, "tcp", nodeAddrs[0], 8080, "web sees 192.0.2.2")
	if got, err := os.ReadFile(conf); err != nil || string(got) != w.flannel() {
		t.Errorf("the add-on's file: %s, %v", got, err)
	}
	check(t, n.Reconcile(t.Context(), nil))
	w.clean(t)
}

// TestBusyDirectory checks that a new configuration is found while other files in its directory change continuously.
func TestBusyDirectory(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.dir, "net.d")
	check(t, os.MkdirAll(dir, 0o755))
	n, news := w.run(t, func(c *Config) { c.ConfDir = dir })
	check(t, n.Reconcile(t.Context(), nil))
	web := w.pod(t, n, "web")
	stop, writing, began := make(chan struct{}), make(chan error, 1), make(chan struct{})
	go func() {
		tick := time.NewTicker(settleTime / 10)
		defer tick.Stop()
		for i := 0; ; i++ {
			if err := os.WriteFile(filepath.Join(dir, "add-on.log"), []byte("x"), 0o600); err != nil {
				writing <- err
				return
			}
			if i == 1 {
				close(began)
			}
			select {
			case <-tick.C:
			case <-stop:
				writing <- nil
				return
			}
		}
	}()
	<-began
	w.conf(t, "10-flannel.conflist", w.flannel())
	until(t, news, "the pod is stale", func() bool { return n.IsStale(web.id) })
	close(stop)
	check(t, <-writing)
	check(t, n.Teardown(t.Context(), web.id, web.path, web.cfg))
}

// TestConflistTakesOverFromPodsThatStay is TestConflistTakesOver with pods that do not terminate in time.
func TestConflistTakesOverFromPodsThatStay(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, func(c *Config) { c.ConfDir = filepath.Join(w.dir, "net.d") })
	slow := w.pod(t, n, "slow", tcp(8080, 80))
	w.conf(t, "10-flannel.conflist", w.flannel())
	check(t, n.Ready())
	n.finishMove(true)
	w.pristine(t)
	if !n.IsStale(slow.id) {
		t.Error("the pod whose network is gone is not stale")
	}
	fresh := w.pod(t, n, "fresh", tcp(8080, 80))
	check(t, n.Teardown(t.Context(), slow.id, slow.path, slow.cfg))
	serve(t, fresh.ns, "fresh", 80)
	wantAnswer(t, w.outside, "tcp", nodeAddrs[0], 8080, "fresh sees 192.0.2.2")
	w.pristine(t)
	check(t, n.Teardown(t.Context(), fresh.id, fresh.path, fresh.cfg))
	w.clean(t)
}

// TestConflistComesWhileTheAgentIsDown checks a conflist that is installed while no agent is running. In one case the pods are still
// running, in the other case a reboot has ended them.
func TestConflistComesWhileTheAgentIsDown(t *testing.T) {
	for _, live := range []bool{true, false} {
		t.Run(fmt.Sprint("live=", live), func(t *testing.T) {
			w := newWorld(t)
			dir := func(c *Config) { c.ConfDir = filepath.Join(w.dir, "net.d") }
			p := w.pod(t, w.network(t, dir), "pod")
			w.conf(t, "10-flannel.conflist", w.flannel())
			n, news := w.run(t, dir)
			if !live {
				check(t, n.Reconcile(t.Context(), nil))
				w.pristine(t)
				check(t, n.CheckPodNetwork())
				return
			}
			check(t, n.Reconcile(t.Context(), []string{p.id}))
			until(t, news, "the pod is stale", func() bool { return n.IsStale(p.id) })
			check(t, n.Teardown(t.Context(), p.id, p.path, p.cfg))
			until(t, news, "pods are admitted", func() bool { return n.CheckPodNetwork() == nil })
			w.pristine(t)
		})
	}
}

func TestNetworkOfConflistsOnly(t *testing.T) {
	w := newWorld(t)
	n, news := w.run(t, func(c *Config) { c.Mode, c.ConfDir = CNIOnly, filepath.Join(w.dir, "net.d") })
	check(t, n.Reconcile(t.Context(), nil))
	_, path := netnstest.New(t)
	_, err := n.Setup(t.Context(), "pod", path, nil)
	for what, err := range map[string]error{"Ready": n.Ready(), "Admit": n.CheckPodNetwork(), "Setup": err} {
		if err == nil || !strings.HasSuffix(err.Error(), "cni plugin not initialized") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := n.Config(); got != "" {
		t.Errorf("configuration: %s", got)
	}
	w.conf(t, "10-flannel.conflist", w.flannel())
	until(t, news, "pods are admitted", func() bool { return n.CheckPodNetwork() == nil })
	check(t, n.Ready())
	if p := w.pod(t, n, "pod"); p.addrs[0].String() != "10.42.0.2" {
		t.Errorf("addresses are %v", p.addrs)
	}
	w.pristine(t)
}

// TestBrokenConfigurationGoes checks that pods are admitted as soon as an invalid configuration is removed.
func TestBrokenConfigurationGoes(t *testing.T) {
	w := newWorld(t)
	n, news := w.run(t, w.conf(t, "1.conflist", `{"name": "half`))
	hear := func(what string) {
		t.Helper()
		select {
		case <-news:
		case <-time.After(patience):
			t.Fatal("Changed was not called: " + what)
		}
	}
	hear("the file is broken")
	check(t, os.Remove(filepath.Join(w.dir, "net.d", "1.conflist")))
	hear("the file is gone")
	until(t, news, "pods are admitted", func() bool { return n.CheckPodNetwork() == nil })
}

func TestBuiltInNetworkOnly(t *testing.T) {
	w := newWorld(t)
	n, _ := w.run(t, w.conf(t, "10-flannel.conflist", w.flannel()), func(c *Config) { c.Mode = BuiltInOnly })
	check(t, n.Reconcile(t.Context(), nil))
	check(t, n.Ready())
	p := w.pod(t, n, "pod")
	if n.IsStale(p.id) || n.Config() != BuiltIn || len(w.links(t)) != 1 || !vethPattern().MatchString(w.links(t)[0]) {
		t.Errorf("links are %v, configuration %s", w.links(t), n.Config())
	}
}

// TestForeignBridgeHasTheAddresses checks a machine on which another cluster has left a bridge with the addresses of the pods.
func TestForeignBridgeHasTheAddresses(t *testing.T) {
	for _, address := range []string{"10.42.0.1/24", "10.42.0.9/24", "10.42.0.129/25", "10.42.0.1/16"} {
		t.Run(address, func(t *testing.T) {
			w := newWorld(t)
			h, err := w.node.Netlink()
			check(t, err)
			defer h.Close()
			cni0 := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
			cni0.Name = "cni0"
			check(t, h.LinkAdd(cni0))
			a, err := netlink.ParseAddr(address)
			check(t, err)
			check(t, h.AddrAdd(cni0, a))
			n := w.network(t)
			check(t, n.Reconcile(t.Context(), nil))
			_, path := netnstest.New(t)
			_, err = n.Setup(t.Context(), "pod", path, nil)
			for what, err := range map[string]error{"Ready": n.Ready(), "Setup": err} {
				if err == nil || !strings.Contains(err.Error(), "interface cni0 has") || !strings.Contains(err.Error(), "islet doctor --fix") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if _, err := h.LinkByName("islet0"); err == nil {
				t.Error("the unused bridge was not removed")
			}
			check(t, h.LinkDel(cni0))
			check(t, n.Ready())
			w.pod(t, n, "pod")
		})
	}
}

// TestNeighboursThatAreNotInTheWay checks two addresses of the node that are not a conflict. One belongs to a larger network that contains
// the node's network. The other has no network, like the address of flannel's VXLAN interface.
func TestNeighboursThatAreNotInTheWay(t *testing.T) {
	w := newWorld(t)
	h, err := w.node.Netlink()
	check(t, err)
	defer h.Close()
	link, err := h.LinkByName("wan0")
	check(t, err)
	for _, address := range []string{"10.0.0.7/8", "10.42.0.0/32"} {
		a, err := netlink.ParseAddr(address)
		check(t, err)
		check(t, h.AddrAdd(link, a))
	}
	n := w.network(t)
	check(t, n.Ready())
	w.pod(t, n, "pod")
}
