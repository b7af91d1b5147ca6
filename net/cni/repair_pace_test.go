package cni

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/notice"
)

// This duration is the maximum time between damage and its repair.
const soon = 2 * time.Second

// mark is the name of a link and of a table. Neither belongs to a pod.
const mark = "mark"

// A pacedNode is a keptNode in a synctest bubble. The clock of the bubble stands still while the kernel or this program works. A listener
// outside of the bubble receives the notices of the kernel.
type pacedNode struct {
	*keptNode
	link         netlink.Link
	handleNotice <-chan notice.Notice // the channel is created outside of the bubble
	marks        int
}

// TestRepairPace checks that damage is repaired within two seconds after the kernel's notice. Nothing else triggers the repair. The test
// uses the clock of the bubble, so the speed of the machine does not matter.
func TestRepairPace(t *testing.T) {
	pacedTest(t, func(t *testing.T, w *pacedNode, web *pod) {
		for _, d := range w.damages(web) {
			for range 2 {
				d.damage(t)
				w.within(t, d)
				w.quiet(t)
			}
			w.n.tracker.contest.items = nil // earlier cases must not affect this one
		}
	})
}

// pacedTest runs a test on an intact node with the pod web.
func pacedTest(t *testing.T, test func(t *testing.T, w *pacedNode, web *pod)) {
	w := &pacedNode{keptNode: &keptNode{world: newWorld(t)}, link: &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: mark}}}
	check(t, w.handle(t).LinkAdd(w.link))
	check(t, w.handle(t).LinkSetUp(w.link)) // the kernel does not report an alias change of a link that is down
	l, err := notice.Open(w.node)
	check(t, err)
	handleNotice, ended := make(chan notice.Notice, 1000), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- l.Run(ctx, func(m notice.Notice) { handleNotice <- m }) }()
	defer func() {
		cancel()
		check(t, <-ended)
	}()
	w.handleNotice = handleNotice
	synctest.Test(t, func(t *testing.T) {
		w.repaired = make(chan string, 1000)
		w.n = w.network(t, cidrs("10.42.0.0/24", "fd00:10:42::/64"), func(c *Config) { c.OnRepair = w.noteRepair(t) })
		web := w.pod(t, w.n, "web", tcp(8080, 80))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = w.n.repairOnNotice(ctx, make(chan error, 1)) }()
		w.quiet(t)
		test(t, w, web)
	})
}

// TestHeldBack checks that a postponed repair runs at the end of its pause. The repair also runs if another part was checked during the
// pause. Pods cannot reach 127.0.0.1 of the node during the pause.
func TestHeldBack(t *testing.T) {
	pacedTest(t, func(t *testing.T, w *pacedNode, web *pod) {
		for _, d := range w.damages(web) {
			if d.kind == bridge.FaultSysctl { // sysctls are compared in each check
				continue
			}
			for _, i := range []item{{itemTable, tableName}, {itemPort, vethPair{id: web.id}.describe()}, {bridge.FaultBridge, "islet0"},
				{bridge.FaultAddress, "10.42.0.1/24"}, {bridge.FaultAddress, "fd00:10:42::1/64"}} {
				for range 2 { // two repairs cause a pause of two seconds, which is longer than checkInterval
					w.n.tracker.contest.recordRepair(i, true, time.Now())
				}
			}
			d.damage(t)
			w.tell(t)
			time.Sleep(2 * repairInterval) // the repair is postponed
			synctest.Wait()
			if d.kind == itemTable && w.localnet(t) != "0" {
				t.Errorf("%s: route_localnet is set without its guard", d.what)
			}
			w.n.tracker.markDamaged(partSysctls)
			w.within(t, d)
			w.quiet(t)
			w.n.tracker.contest.items = nil
		}
		if w.localnet(t) != "1" {
			t.Error("route_localnet is not set again")
		}
	})
}

// TestUnseen checks that a part is checked again after its check has failed. No further notice is needed.
func TestUnseen(t *testing.T) {
	pacedTest(t, func(t *testing.T, w *pacedNode, _ *pod) {
		w.removeAddress(t, "10.42.0.1/24")
		host := func(ns netns.NS) {
			w.n.operations.Lock() // waits until no check is running
			defer w.n.operations.Unlock()
			w.n.cfg.Host = ns
		}
		host(netns.At("/nowhere"))
		w.tell(t)
		time.Sleep(2 * repairInterval) // in the bubble
		synctest.Wait()
		host(w.node)
		time.Sleep(soon) // in the bubble
		synctest.Wait()
		select {
		case kind := <-w.repaired:
			if kind != bridge.FaultAddress {
				t.Errorf("%s was repaired", kind)
			}
		default:
			t.Error("the address is never restored")
		}
	})
}

func (w *pacedNode) localnet(t *testing.T) (value string) {
	t.Helper()
	check(t, w.node.Do(func() error {
		is, err := os.ReadFile("/proc/sys/net/ipv4/conf/islet0/route_localnet")
		value = strings.TrimSpace(string(is))
		return err
	}))
	return value
}

// within waits until an item of the damaged kind is repaired.
func (w *pacedNode) within(t *testing.T, d damage) {
	t.Helper()
	began := time.Now()
	for {
		w.tell(t)
		select {
		case kind := <-w.repaired:
			if kind == d.kind {
				return
			}
		case <-time.After(gatherTime):
			if time.Since(began) > soon {
				t.Fatalf("%s: no %s is repaired in %s", d.what, d.kind, soon)
			}
		}
	}
}

// quiet waits until a repair is complete and no other repair is due. It returns just after a repair, when the pause before the next repair
// is longest.
func (w *pacedNode) quiet(t *testing.T) {
	t.Helper()
	for range 3 { // a repair causes notices too
		w.tell(t)
		time.Sleep(soon) // in the bubble
		synctest.Wait()
	}
	w.settled(t)
	w.n.tracker.markDamaged(partSysctls)
	time.Sleep(2 * gatherTime)
	synctest.Wait()
	for len(w.repaired) > 0 {
		<-w.repaired
	}
}

// tell delivers the notices that the kernel has sent since the last call.
func (w *pacedNode) tell(t *testing.T) {
	t.Helper()
	w.marks++
	check(t, w.handle(t).LinkSetAlias(w.link, fmt.Sprint(w.marks)))
	marker := &nftables.Table{Name: mark, Family: nftables.TableFamilyIPv4}
	check(t, w.ruleset(func(c *nftables.Conn) { c.AddTable(marker) }))
	check(t, w.ruleset(func(c *nftables.Conn) { c.DelTable(marker) }))
	var link, table bool
	for !link || !table {
		m := <-w.handleNotice
		switch {
		case m.Name != mark:
			w.n.handleNotice(m)
		case m.Kind == notice.Link:
			link = true
		case m.Gone:
			table = true
		}
	}
}
