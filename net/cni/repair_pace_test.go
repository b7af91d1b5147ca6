package cni

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/islet-edge/islet/net/notice"
)

// soon is the time in which damage is to be repaired.
const soon = 2 * time.Second

// mark is the name of a link and a table that have nothing to do with pods.
const mark = "mark"

// A pacedNode is a keptNode in a bubble, whose clock stands still while the kernel and this
// program work. The notices come from a listener outside of it.
type pacedNode struct {
	*keptNode
	link  netlink.Link
	heard <-chan notice.Notice // made outside of the bubble
	marks int
}

// TestRepairPace: damage is repaired within 2 s, by the kernel's notice of it alone. The time
// is that of a bubble, so a slow machine does not count.
func TestRepairPace(t *testing.T) {
	w := &pacedNode{keptNode: &keptNode{world: newWorld(t)}, link: &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: mark}}}
	check(t, w.handle(t).LinkAdd(w.link))
	check(t, w.handle(t).LinkSetUp(w.link)) // the kernel reports no alias of a link that is down
	l, err := notice.Open(w.node)
	check(t, err)
	heard, ended := make(chan notice.Notice, 1000), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- l.Run(ctx, func(m notice.Notice) { heard <- m }) }()
	defer func() {
		cancel()
		check(t, <-ended)
	}()
	w.heard = heard
	synctest.Test(t, func(t *testing.T) {
		w.repaired = make(chan string, 1000)
		w.n = w.network(t, cidrs("10.42.0.0/24", "fd00:10:42::/64"), func(c *Config) { c.Repaired = func(kind string) { w.repaired <- kind } })
		web := w.pod(t, w.n, "web", tcp(8080, 80))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = w.n.follow(ctx, make(chan error, 1)) }()
		w.quiet(t)
		for _, d := range w.damages(web) {
			for range 2 {
				d.damage(t)
				w.within(t, d)
				w.quiet(t)
			}
			w.n.keep.contest.items = nil // each case is one of its own
		}
	})
}

// within waits until an item of the damage's kind is repaired.
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
		case <-time.After(gather):
			if time.Since(began) > soon {
				t.Fatalf("%s: no %s is repaired in %s", d.what, d.kind, soon)
			}
		}
	}
}

// quiet waits until what is repaired is repaired whole, and until no pass is due any more. It
// ends just after a pass, which is when the next one has to wait longest.
func (w *pacedNode) quiet(t *testing.T) {
	t.Helper()
	for range 3 { // a repair is news, too
		w.tell(t)
		time.Sleep(soon) // of the bubble
		synctest.Wait()
	}
	w.settled(t)
	w.n.keep.mark(dirtSysctls)
	time.Sleep(2 * gather)
	synctest.Wait()
	for len(w.repaired) > 0 {
		<-w.repaired
	}
}

// tell passes on all that the kernel has reported up to now.
func (w *pacedNode) tell(t *testing.T) {
	t.Helper()
	w.marks++
	check(t, w.handle(t).LinkSetAlias(w.link, fmt.Sprint(w.marks)))
	marker := &nftables.Table{Name: mark, Family: nftables.TableFamilyIPv4}
	check(t, w.ruleset(func(c *nftables.Conn) { c.AddTable(marker) }))
	check(t, w.ruleset(func(c *nftables.Conn) { c.DelTable(marker) }))
	var link, table bool
	for !link || !table {
		m := <-w.heard
		switch {
		case m.Name != mark:
			w.n.heard(m)
		case m.Kind == notice.Link:
			link = true
		case m.Gone:
			table = true
		}
	}
}
