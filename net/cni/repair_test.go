package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/islet-edge/islet/net/nft"
)

// repairTime is the maximum time to wait for a repair on a busy machine. On an idle machine a repair takes a tenth of a second.
// TestRepairPace checks the limit of two seconds.
const repairTime = patience

// A keptNode is a node with a running Network. It records the events of the node.
type keptNode struct {
	*world
	n        *Network
	repaired chan string
	mu       sync.Mutex
	events   []string
}

func newKeptNode(t *testing.T, change ...func(*Config)) *keptNode {
	t.Helper()
	w := &keptNode{world: newWorld(t), repaired: make(chan string, 1000)}
	w.n = w.network(t, append(change, func(c *Config) {
		c.OnRepair = w.noteRepair(t)
		c.RecordEvent = func(warning bool, reason, message string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, reason+": "+message)
			eventtest.RecordEvent("Warning", reason, message)
		}
	})...)
	check(t, w.n.Reconcile(t.Context(), nil))
	w.run(t)
	return w
}

// run runs the network, which repairs itself, until stop is called or the test ends.
func (w *keptNode) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.n.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (w *keptNode) reported(reason string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if strings.HasPrefix(e, reason+":") {
			return true
		}
	}
	return false
}

// noteRepair returns the function that is called for each repair. A kind that RepairedItems lacks would have no metric before its first
// repair.
func (w *keptNode) noteRepair(t *testing.T) func(kind string) {
	return func(kind string) {
		if !slices.Contains(RepairedItems(), kind) {
			t.Errorf("RepairedItems lacks %q", kind)
		}
		w.repaired <- kind
	}
}

// TestContestedRate checks how often an item is repaired that another program removes after each repair. The alert
// IsletNetworkRepairedOften needs more than ten repairs in each hour.
func TestContestedRate(t *testing.T) {
	var c repairSchedule
	i, now := item{itemTable, tableName}, time.Unix(1e9, 0)
	for hour := range 5 {
		repairs := 0
		for end := now.Add(time.Hour); now.Before(end); now = now.Add(time.Second) {
			if _, held := c.isHeld(i, now); !held {
				c.recordRepair(i, false, now)
				repairs++
			}
		}
		if repairs <= 10 {
			t.Errorf("%d repairs in hour %d", repairs, hour)
		}
	}
}

// back waits until an item of the given kind is repaired. The test fails after repairTime.
func (w *keptNode) back(t *testing.T, kind string) {
	t.Helper()
	late := time.After(repairTime)
	for {
		select {
		case is := <-w.repaired:
			if is == kind {
				return
			}
		case <-late:
			t.Fatalf("no %s was repaired in %s; events: %q", kind, repairTime, w.events)
		}
	}
}

func (w *keptNode) handle(t *testing.T) *netlink.Handle {
	t.Helper()
	h, err := w.node.Netlink()
	check(t, err)
	t.Cleanup(h.Close)
	return h
}

func (w *keptNode) link(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := w.handle(t).LinkByName(name)
	check(t, err)
	return l
}

// flush removes all nftables tables, like nft flush ruleset.
func (w *keptNode) flush(t *testing.T) {
	t.Helper()
	check(t, w.ruleset(func(c *nftables.Conn) { c.FlushRuleset() }))
}

func (w *keptNode) ruleset(f func(c *nftables.Conn)) error {
	ns, err := w.node.Open()
	if err != nil {
		return err
	}
	defer ns.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		return err
	}
	f(c)
	return c.Flush()
}

func (w *keptNode) route(t *testing.T, dst string, table int) {
	t.Helper()
	p, err := netlink.ParseIPNet(dst)
	check(t, err)
	h := w.handle(t)
	family := netlink.FAMILY_V4
	if strings.Contains(dst, ":") {
		family = netlink.FAMILY_V6
	}
	list, err := h.RouteListFiltered(family, &netlink.Route{Table: table, LinkIndex: w.link(t, "islet0").Attrs().Index}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
	check(t, err)
	for _, r := range list {
		if r.Dst.String() == p.String() {
			check(t, h.RouteDel(&r))
			return
		}
	}
	t.Fatalf("no route to %s: %v", dst, list)
}

// A damage is a change that another program makes to the pod network.
type damage struct {
	what, kind string
	damage     func(t *testing.T)
}

// damages returns a damage of each kind. The node has the pod web.
func (w *keptNode) damages(web *pod) []damage {
	islet4 := &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}
	return []damage{
		{"nft flush ruleset", itemTable, func(t *testing.T) { w.flush(t) }},
		{"a chain is flushed", itemTable, func(t *testing.T) {
			check(t, w.ruleset(func(c *nftables.Conn) { c.FlushChain(&nftables.Chain{Name: "guard", Table: islet4}) }))
		}},
		{"a rule is put in front", itemTable, func(t *testing.T) {
			check(t, w.ruleset(func(c *nftables.Conn) {
				c.InsertRule(&nftables.Rule{Table: islet4, Chain: &nftables.Chain{Name: "guard", Table: islet4}, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
			}))
		}},
		{"a set is flushed", itemTable, func(t *testing.T) {
			check(t, w.ruleset(func(c *nftables.Conn) { c.FlushSet(&nftables.Set{Name: "by_port", Table: islet4}) }))
		}},
		{"the bridge is removed", bridge.FaultBridge, func(t *testing.T) { check(t, w.handle(t).LinkDel(w.link(t, "islet0"))) }},
		{"the bridge is set down", bridge.FaultBridge, func(t *testing.T) { check(t, w.handle(t).LinkSetDown(w.link(t, "islet0"))) }},
		{"a port is removed", itemPort, func(t *testing.T) { check(t, w.handle(t).LinkDel(w.link(t, vethName(web.id)))) }},
		{"a port is set down", itemPort, func(t *testing.T) { check(t, w.handle(t).LinkSetDown(w.link(t, vethName(web.id)))) }},
		{"a port leaves the bridge", itemPort, func(t *testing.T) { check(t, w.handle(t).LinkSetNoMaster(w.link(t, vethName(web.id)))) }},
		{"a pod's end is removed", itemPort, func(t *testing.T) { check(t, bridge.Detach(web.ns, Interface)) }},
		{"an IPv4 address is removed", bridge.FaultAddress, func(t *testing.T) { w.removeAddress(t, "10.42.0.1/24") }},
		{"an IPv6 address is removed", bridge.FaultAddress, func(t *testing.T) { w.removeAddress(t, "fd00:10:42::1/64") }},
		{"an IPv4 route is removed", bridge.FaultRoute, func(t *testing.T) { w.route(t, "10.42.0.0/24", unix.RT_TABLE_MAIN) }},
		{"an IPv6 route is removed", bridge.FaultRoute, func(t *testing.T) { w.route(t, "fd00:10:42::/64", unix.RT_TABLE_MAIN) }},
		{"the route to the bridge's address is removed", bridge.FaultRoute, func(t *testing.T) { w.route(t, "10.42.0.1/32", unix.RT_TABLE_LOCAL) }},
		{"IPv4 is not forwarded", bridge.FaultSysctl, func(t *testing.T) {
			check(t, w.node.Set(netns.Sysctl{Name: "ipv4/ip_forward", Value: "0"}))
		}},
		{"IPv6 is not forwarded", bridge.FaultSysctl, func(t *testing.T) {
			check(t, w.node.Set(netns.Sysctl{Name: "ipv6/conf/all/forwarding", Value: "0"}))
		}},
		{"route_localnet is off, and a link changes", bridge.FaultSysctl, func(t *testing.T) {
			check(t, w.node.Set(netns.Sysctl{Name: "ipv4/conf/islet0/route_localnet", Value: "0"}))
			check(t, w.handle(t).LinkSetAlias(w.link(t, "wan0"), fmt.Sprint(time.Now().UnixNano())))
		}},
	}
}

// TestRepair damages each item of the pod network twice. It checks that the network is repaired although no caller requests the runtime's
// status.
func TestRepair(t *testing.T) {
	w := newKeptNode(t, cidrs("10.42.0.0/24", "fd00:10:42::/64"))
	web, other := w.pod(t, w.n, "web", tcp(8080, 80)), w.pod(t, w.n, "other")
	serve(t, web.ns, "web", 80)
	works := func(t *testing.T) {
		t.Helper()
		wantAnswer(t, w.outside, "tcp", "192.0.2.1", 8080, "web sees 192.0.2.2")
		wantAnswer(t, w.outside, "tcp", "2001:db8::1", 8080, "web sees 2001:db8::2")
		wantAnswer(t, w.node, "tcp", "127.0.0.1", 8080, "web sees 10.42.0.1")
		wantAnswer(t, w.node, "tcp", "::1", 8080, "web sees fd00:10:42::1")
		wantAnswer(t, other.ns, "tcp", "10.42.0.2", 80, "web sees 10.42.0.3")
		wantAnswer(t, other.ns, "tcp", "fd00:10:42::2", 80, "web sees fd00:10:42::3")
	}
	works(t)
	for _, tt := range w.damages(web) {
		t.Run(tt.what, func(t *testing.T) {
			for range 2 {
				tt.damage(t)
				w.back(t, tt.kind)
				w.settled(t)
				works(t)
			}
		})
		w.n.tracker.repairMu.Lock()
		w.n.tracker.contest.items = nil // earlier cases must not affect this one
		w.n.tracker.repairMu.Unlock()
	}
	if r := w.n.Repairs(); r.Count < 36 || r.LastItem == "" || !w.reported("PodNetworkRepaired") || w.reported("PodNetworkNotRepaired") ||
		w.reported("PodNetworkLost") {
		t.Errorf("%+v, events %q", r, w.events)
	}
}

func (w *keptNode) removeAddress(t *testing.T, address string) {
	t.Helper()
	a, err := netlink.ParseAddr(address)
	check(t, err)
	check(t, w.handle(t).AddrDel(w.link(t, "islet0"), a))
}

// settled waits until the repair and the checks after it are complete.
func (w *keptNode) settled(t *testing.T) {
	t.Helper()
	late := time.After(repairTime)
	for {
		w.n.tracker.repairMu.Lock()
		table, local, err := w.n.ports.FindDamage()
		w.n.mu.Lock()
		c, _, _ := w.n.bridgeConfig()
		w.n.mu.Unlock()
		c.Routes = true
		faults, _ := bridge.FindDamage(w.node, c)
		var ends []string
		for end := range w.n.tracker.copyWires() {
			ends = append(ends, end)
		}
		out, _ := bridge.MissingPorts(w.node, "islet0", ends)
		w.n.tracker.repairMu.Unlock()
		if !table && !local && err == nil && len(faults)+len(out) == 0 {
			return
		}
		select {
		case <-w.repaired:
		case <-late:
			t.Fatalf("after %s: table %t, sysctl %t, %v, %v; events %q", repairTime, table, local, faults, out, w.events)
		}
	}
}

// TestRepairFirewall checks a firewall that drops forwarded packets. The test removes the rules for pods, as a reload of the firewall does.
func TestRepairFirewall(t *testing.T) {
	w := newKeptNode(t)
	web := w.pod(t, w.n, "web")
	serve(t, w.outside, "outside", 80)
	fw := &nftables.Table{Name: "fw", Family: nftables.TableFamilyINet}
	drop := nftables.ChainPolicyDrop
	forward := &nftables.Chain{Name: "forward", Table: fw, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop}
	check(t, w.ruleset(func(c *nftables.Conn) { c.AddTable(fw); c.AddChain(forward) }))
	wantAnswer(t, web.ns, "tcp", "192.0.2.2", 80, "outside sees 192.0.2.1") // TCP sends lost packets again
	for range 2 {
		check(t, w.ruleset(func(c *nftables.Conn) { c.FlushChain(forward) }))
		w.back(t, itemFirewall)
		wantAnswer(t, web.ns, "tcp", "192.0.2.2", 80, "outside sees 192.0.2.1")
	}
}

// TestRepairAfterRestart checks that the next agent repairs a bridge that was removed while no agent was running.
func TestRepairAfterRestart(t *testing.T) {
	w := newKeptNode(t)
	web := w.pod(t, w.n, "web", tcp(8080, 80))
	serve(t, web.ns, "web", 80)
	w.n = w.network(t, func(c *Config) {
		*c = w.n.cfg
		c.Sandbox = func(id string) (string, string) { return web.path, "default/web" }
	})
	h := w.handle(t)
	check(t, h.LinkDel(w.link(t, "islet0")))
	check(t, h.LinkDel(w.link(t, vethName(web.id))))
	check(t, w.n.Reconcile(t.Context(), []string{web.id}))
	w.run(t)
	w.back(t, itemPort)
	w.settled(t)
	wantAnswer(t, w.outside, "tcp", "192.0.2.1", 8080, "web sees 192.0.2.2")
}

// TestLostSandbox checks that a pod is replaced after its network namespace and its bridge port were removed.
func TestLostSandbox(t *testing.T) {
	changed := make(chan struct{}, 100)
	w := newKeptNode(t, func(c *Config) { c.Changed = func() { changed <- struct{}{} } })
	_, path, end := netnstest.NewUntilEnd(t)
	_, err := w.n.Setup(t.Context(), "pod", path, nil)
	check(t, err)
	if w.n.IsStale("pod") {
		t.Fatal("the sandbox is stale before the damage")
	}
	end()
	late := time.After(10 * time.Second) // the kernel takes some time to remove a namespace
	for !w.n.IsStale("pod") {
		select {
		case <-changed:
		case <-late:
			t.Fatalf("the sandbox is not replaced; events %q", w.events)
		}
	}
	if !w.reported("PodNetworkLost") {
		t.Errorf("events %q", w.events)
	}
	check(t, w.n.Teardown(t.Context(), "pod", path, nil))
	if w.n.IsStale("pod") {
		t.Error("the sandbox is stale after Teardown")
	}
}

// TestNotRepaired checks that a repair that fails is reported once and retried later.
func TestNotRepaired(t *testing.T) {
	w := newKeptNode(t)
	w.pod(t, w.n, "web")
	w.settled(t)
	p := &repairPass{n: w.n, now: time.Now()}
	w.n.tracker.repairMu.Lock()
	for range 3 {
		p.recordRepair(item{itemTable, "other"}, partTable, errors.New("no such device"))
	}
	w.n.tracker.repairMu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	want := "PodNetworkNotRepaired: The nftables table other of the pod network is missing or changed and cannot be repaired: no such device"
	if n := len(slices.DeleteFunc(slices.Clone(w.events),
		func(e string) bool { return !strings.HasPrefix(e, "PodNetworkNotRepaired") })); n != 1 || !slices.Contains(w.events, want) {
		t.Errorf("events %q", w.events)
	}
	if len(p.fixed) > 0 || p.postponedParts&partTable == 0 || !p.nextTime.After(p.now) {
		t.Errorf("%+v", p)
	}
}

// TestHold checks a pod that loses its bridge port during the trial of a configuration. The pod is not repaired, so the trial fails.
func TestHold(t *testing.T) {
	w := newKeptNode(t, func(c *Config) { c.Hold = true })
	web := w.pod(t, w.n, "web")
	w.settled(t)
	end := vethName(web.id)
	check(t, w.handle(t).LinkDel(w.link(t, end)))
	if _, _, err := w.n.repairParts(partPorts, true); err != nil {
		t.Error(err)
	}
	if link, err := w.handle(t).LinkByName(end); err == nil {
		t.Errorf("%s is back: %v", end, link)
	}
}

// TestContest checks another program that removes an item after each repair. The program is reported and does not cause a busy loop.
func TestContest(t *testing.T) {
	w := newKeptNode(t)
	w.pod(t, w.n, "web")
	w.settled(t)
	for range freeRepairs + 1 {
		w.flush(t)
		w.back(t, itemTable)
	}
	last := w.n.Repairs().Last
	w.flush(t)
	w.back(t, itemTable)
	if after := w.n.Repairs().Last.Sub(last); after < firstPause {
		t.Errorf("a contested table is repaired after %s", after)
	}
	if !w.reported("PodNetworkContested") || len(w.n.Repairs().Contested) != 1 {
		t.Errorf("%+v, events %q", w.n.Repairs(), w.events)
	}
	w.settled(t)
	w.flush(t)
	_, _, _ = w.n.repairParts(partTable, false)
	if err := w.n.Ready(); err == nil || !strings.Contains(err.Error(), "nftables table islet") {
		t.Errorf("with a damaged table the network is ready: %v", err)
	}
}

// TestContestGrows checks all pauses of the back-off, from the shortest to the longest.
func TestContestGrows(t *testing.T) {
	for _, failed := range []bool{false, true} {
		c, i, now := repairSchedule{}, item{itemTable, "x"}, time.Unix(1e9, 0)
		reported, free := 0, freeRepairs
		if failed {
			free = 0
		}
		var pauses []time.Duration
		for range 30 {
			if _, held := c.isHeld(i, now); held {
				t.Fatal("held although the repair is due")
			}
			if c.recordRepair(i, failed, now) {
				reported++
			}
			until, held := c.isHeld(i, now)
			if held {
				pauses = append(pauses, until.Sub(now))
				now = until
			}
		}
		if len(pauses) != 30-free || pauses[0] != firstPause || pauses[len(pauses)-1] != longestPause || reported != 1 {
			t.Errorf("failed %t: %d events, pauses %v", failed, reported, pauses)
		}
		if c.removeUndamaged(now.Add(quietTime)); len(c.items) != 0 {
			t.Error("the repairs are never forgotten")
		}
	}
}

// TestLocalnetFollowsPorts checks that route_localnet is set only while a host port is open at 127.0.0.1. The firewall rule that protects
// the node's loopback addresses exists the whole time.
func TestLocalnetFollowsPorts(t *testing.T) {
	w := newWorld(t)
	n := w.network(t)
	want := func(value string) {
		t.Helper()
		check(t, w.node.Do(func() error {
			is, err := os.ReadFile("/proc/sys/net/ipv4/conf/islet0/route_localnet")
			if string(is) != value+"\n" {
				t.Errorf("route_localnet is %q, want %s", is, value)
			}
			return err
		}))
	}
	w.pod(t, n, "plain")
	want("0")
	addressed := tcp(8081, 80)
	addressed.HostIp = "192.0.2.1"
	w.pod(t, n, "addressed", addressed)
	want("0")
	web := w.pod(t, n, "web", tcp(8080, 80))
	want("1")
	check(t, n.Teardown(t.Context(), web.id, web.path, web.cfg))
	want("0")
	// An earlier agent has set route_localnet permanently.
	check(t, w.node.Set(netns.Sysctl{Name: "ipv4/conf/islet0/route_localnet", Value: "1"}))
	check(t, n.Ready())
	want("0")
	if _, err := nft.PrintOf(w.node, tableName); err != nil {
		t.Error(err)
	}
}

// clearEvents removes the recorded events.
func (w *keptNode) clearEvents() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = nil
}

// TestAddressComesLater checks that another network of the machine that overlaps with the pods' network is reported whenever it appears,
// until it disappears. The node is not Ready only if the machine itself may be cut off. In a trial the node stays Ready.
func TestAddressComesLater(t *testing.T) {
	var changes atomic.Int32
	w := newKeptNode(t, func(c *Config) { c.Changed = func() { changes.Add(1) } })
	w.pod(t, w.n, "pod")
	w.settled(t)
	h, wan := w.handle(t), w.link(t, "wan0")
	lan := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	lan.Name = "lan0"
	check(t, h.LinkAdd(lan))
	check(t, h.LinkSetUp(lan))
	const nothing, beside, cut = "", "beside", "cut"
	for _, x := range []struct {
		address, gateway string // of lan0; the gateway may be behind wan0
		want             string
	}{
		{"198.51.100.57/24", "", nothing},
		{"10.42.0.58/32", "", nothing},
		{"10.0.0.7/8", "10.0.0.1", nothing},
		{"10.42.0.57/24", "192.0.2.2", beside},
		{"10.42.0.57/16", "10.42.255.1", beside},
		{"10.42.0.57/24", "", cut},
		{"10.42.0.57/16", "10.42.0.1", cut}, // the kernel refuses the gateway, because it is an address of the bridge
		{"10.42.0.57/24", "10.42.0.9", cut},
		{"10.0.0.7/8", "10.42.0.9", cut},
		{"10.42.0.1/32", "192.0.2.2", cut},
	} {
		for _, hold := range []bool{false, true} {
			w.n.tracker.repairMu.Lock()
			w.n.cfg.Hold = hold
			w.n.tracker.repairMu.Unlock()
			w.clearEvents()
			changes.Store(0)
			a, err := netlink.ParseAddr(x.address)
			check(t, err)
			route := &netlink.Route{LinkIndex: lan.Index, Gw: net.ParseIP(x.gateway), Flags: int(netlink.FLAG_ONLINK)}
			if x.gateway == "192.0.2.2" {
				route.LinkIndex = wan.Attrs().Index
			}
			_, route.Dst, _ = net.ParseCIDR("0.0.0.0/0")
			refused := true
			if x.gateway != "" {
				refused = h.RouteAdd(route) != nil
			}
			check(t, h.AddrAdd(lan, a))
			_, _, err = w.n.repairParts(partRange, false)
			if cuts := x.want == cut && !hold; (err != nil) != cuts || (w.n.Ready() != nil) != cuts {
				t.Errorf("%+v, on trial %v: %v", x, hold, err)
			}
			if found := x.want != nothing; w.reported("PodNetworkConflict") != found || (w.n.Repairs().Conflict != "") != found {
				t.Errorf("%+v, on trial %v: %+v, events %q", x, hold, w.n.Repairs(), w.events)
			}
			check(t, h.AddrDel(lan, a))
			if !refused {
				_ = h.RouteDel(route) // the kernel has removed it together with the last address
			}
			if refused != (x.gateway == "" || x.gateway == "10.42.0.1") {
				t.Errorf("%+v: the route was refused: %v", x, refused)
			}
			if _, _, err := w.n.repairParts(partRange, false); err != nil || w.n.Repairs().Conflict != "" {
				t.Errorf("%+v is gone: %v, %+v", x, err, w.n.Repairs())
			}
			if got := changes.Load(); got != 0 && (x.want != cut || hold) || got == 0 && x.want == cut && !hold {
				t.Errorf("%+v, on trial %v: Changed was called %d times", x, hold, got)
			}
		}
	}
}

// TestConflictUnknown checks a failure to read the machine's networks. It does not count as a conflict, the last result stays, and the read
// is repeated.
func TestConflictUnknown(t *testing.T) {
	w := newKeptNode(t)
	w.pod(t, w.n, "pod")
	w.settled(t)
	was := w.n.cfg.Host
	w.n.tracker.repairMu.Lock()
	p := &repairPass{n: w.n, now: time.Now()}
	w.n.cfg.Host = netns.At("/nowhere")
	for _, before := range []error{nil, errors.New("conflict")} {
		w.n.tracker.errs[partRange] = before
		if got := p.checkRange(partRange); got != before { //nolint:errorlint // it must be the same
			t.Errorf("got %v, want %v", got, before)
		}
	}
	w.n.cfg.Host = was
	delete(w.n.tracker.errs, partRange)
	w.n.tracker.repairMu.Unlock()
	if p.postponedParts != partRange || w.reported("PodNetworkConflict") {
		t.Errorf("parts %b are checked again; events %q", p.postponedParts, w.events)
	}
}
