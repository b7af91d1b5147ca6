package cni

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/islet-edge/islet/net/notice"
)

const (
	// gather is how long after a notice the pass begins: what one command does comes in
	// several notices.
	gather = 20 * time.Millisecond
	// between is the least time between two passes, and betweenLooks where nothing of the
	// network's own changed.
	between, betweenLooks = 200 * time.Millisecond, time.Second
	// share is how many times as long as a pass took the next one waits at least, up to
	// betweenLooks: with thousands of chains of others, which change all the time, to list
	// them takes long.
	share = 20
	// reopen is how long after an error the kernel is listened to again.
	reopen = time.Second
	// mostChains of firewalls are known by name.
	mostChains = 64
)

// dirt names parts of the built-in network that somebody may have changed.
type dirt uint

const (
	dirtTable    dirt = 1 << iota // the nftables table, and route_localnet that needs it
	dirtBridge                    // the bridge, its addresses and sysctls
	dirtRoutes                    // the routes of the bridge
	dirtPorts                     // the veths of sandboxes
	dirtFirewall                  // the rules in others' tables
	dirtSysctls                   // those that change without a notice
	dirtAll      = dirtTable | dirtBridge | dirtRoutes | dirtPorts | dirtFirewall
)

// A wire is the connection of a sandbox with the bridge.
type wire struct{ id, path, pod string }

// title names it for a person.
func (w wire) title() string {
	if w.pod == "" {
		return fmt.Sprintf("of sandbox %.13s (%s)", w.id, vethName(w.id))
	}
	return fmt.Sprintf("of pod %s (%s)", w.pod, vethName(w.id))
}

// A keeper knows what the built-in network consists of, and what was repaired of it.
//
//	kernel --notice--> heard --dirt--> keepUp --pass--> mend
//	                                               Ready --^
type keeper struct {
	signal  chan struct{} // capacity 1: there is dirt, or the network came or went
	listens atomic.Bool   // changes are heard of
	index   atomic.Int64  // of the bridge

	mu        sync.Mutex
	dirt      dirt
	wires     map[string]wire // by the name of the node's end
	lost      map[string]bool // sandboxes that have to be replaced
	admitted  map[string]bool // chains of firewalls that let pods through
	stats     Repairs
	contested map[item]time.Time // until when

	passing sync.Mutex // guards the rest: one pass at a time. It is taken before Network.all.
	contest contest
	errs    map[dirt]error // of the last pass over a part
	failed  map[dirt]int   // how often in a row a part could not even be looked at
}

func newKeeper() *keeper {
	return &keeper{signal: make(chan struct{}, 1), wires: map[string]wire{}, lost: map[string]bool{}, admitted: map[string]bool{}, errs: map[dirt]error{}, failed: map[dirt]int{}}
}

// Repairs counts the items of the built-in network that were repaired since the agent started.
type Repairs struct {
	Count     int
	Last      time.Time
	What      string   // the last item
	Contested []string // items that another program removes again and again
}

// Repairs returns what was repaired.
func (n *Network) Repairs() Repairs {
	k := n.keep
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.stats
	for i, until := range k.contested {
		if time.Now().Before(until) {
			out.Contested = append(out.Contested, i.String())
		}
	}
	slices.Sort(out.Contested)
	return out
}

func (k *keeper) count(i item, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stats.Count, k.stats.Last, k.stats.What = k.stats.Count+1, now, i.String()
}

func (k *keeper) wired(w wire) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wires[vethName(w.id)] = w
	delete(k.lost, w.id)
}

func (k *keeper) unwired(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.wires, vethName(id))
}

// forget ends that a sandbox is to be replaced.
func (k *keeper) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lost, id)
}

// lose notes that a sandbox is to be replaced, and that its port is not repaired any more.
func (k *keeper) lose(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.wires, vethName(id))
	k.lost[id] = true
}

func (k *keeper) isLost(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost[id]
}

func (k *keeper) has(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, there := k.wires[vethName(id)]
	return there
}

func (k *keeper) portsNow() map[string]wire {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.wires)
}

// admit notes a chain, and reports whether it is a new one. The number of chains that are
// known is bounded: a firewall may give them ever new names.
func (k *keeper) admit(chain string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.admitted[chain] {
		return false
	}
	if len(k.admitted) >= mostChains {
		clear(k.admitted)
	}
	k.admitted[chain] = true
	return true
}

func (k *keeper) admittedNow() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.admitted))
}

// mark notes dirt.
func (k *keeper) mark(d dirt) {
	k.mu.Lock()
	k.dirt |= d
	k.mu.Unlock()
	k.poke()
}

func (k *keeper) take() dirt {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.dirt
	k.dirt = 0
	return d
}

func (k *keeper) noted() dirt {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dirt
}

func (k *keeper) poke() {
	select {
	case k.signal <- struct{}{}:
	default:
	}
}

// heard turns a notice of the kernel into dirt. It does not block.
func (n *Network) heard(m notice.Notice) { n.keep.mark(n.concerns(m)) }

// concerns says which parts a notice may be about. All others are the occasion to compare
// the sysctls of which there are no notices.
func (n *Network) concerns(m notice.Notice) dirt {
	k := n.keep
	index := int(k.index.Load())
	switch m.Kind {
	case notice.Lost:
		return dirtAll
	case notice.Link:
		if m.Name == n.cfg.Bridge || m.Index == index {
			if m.Gone || !m.Up || m.Name != n.cfg.Bridge || m.Index != index {
				return dirtBridge | dirtPorts | dirtRoutes
			}
			return dirtSysctls
		}
		k.mu.Lock()
		_, ours := k.wires[m.Name]
		k.mu.Unlock()
		if ours && (m.Gone || !m.Up || m.Master != index) {
			return dirtPorts
		}
	case notice.Address:
		if m.Gone && m.Index == index {
			return dirtBridge | dirtRoutes
		}
	case notice.Route:
		if m.Gone && m.Index == index {
			return dirtRoutes
		}
	case notice.Sysctl:
		return dirtBridge
	case notice.Rules:
		if m.Name == tableName {
			return dirtTable
		}
		return dirtFirewall
	case notice.Elements:
		if m.Name == tableName {
			return dirtTable
		}
	}
	return dirtSysctls
}

// keepUp repairs the built-in network while it is on the node, until ctx ends. It works
// only after a notice of the kernel.
func (n *Network) keepUp(ctx context.Context) {
	for ctx.Err() == nil {
		if p := n.now(); !p.laid || p.moved {
			select {
			case <-n.keep.signal:
			case <-ctx.Done():
			}
			continue
		}
		if err := n.listen(ctx); err != nil && ctx.Err() == nil {
			n.cfg.Log.Warn("damage to the pod network is seen late", "error", err)
			select {
			case <-time.After(reopen):
			case <-ctx.Done():
			}
		}
	}
}

// listen follows the kernel while the built-in network is on the node.
func (n *Network) listen(ctx context.Context) error {
	l, err := notice.Open(n.cfg.Host)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx, n.heard) }()
	defer func() {
		n.keep.listens.Store(false)
		cancel()
		<-ended
	}()
	n.keep.listens.Store(true)
	n.keep.mark(dirtAll) // what changed before
	return n.follow(ctx, ended)
}

// follow does the passes that notices ask for. A pass is never put off by more notices.
func (n *Network) follow(ctx context.Context, ended chan error) error {
	due, again := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	due.Stop()
	again.Stop()
	var last, at time.Time // of the last pass, and of the next one; zero: none is due
	var took time.Duration // the last pass
	var held dirt          // what again is for; it stays due whatever else is looked at before
	var until time.Time    // when again fires
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			ended <- nil // for listen
			return err
		case <-again.C:
			n.keep.mark(held)
			held = 0
		case <-n.keep.signal:
			if p := n.now(); !p.laid || p.moved {
				return nil
			}
			pause := min(max(between, share*took), betweenLooks)
			if n.keep.noted()&dirtAll == 0 {
				pause = betweenLooks
			}
			now := time.Now()
			if next := now.Add(max(gather, last.Add(pause).Sub(now))); at.IsZero() || next.Before(at) {
				at = next
				due.Reset(next.Sub(now))
			}
		case <-due.C:
			at = time.Time{}
			began := time.Now()
			wake, parts, _ := n.mend(n.keep.take(), false) // Ready tells the error
			last = time.Now()
			took = last.Sub(began)
			if parts != 0 && (held == 0 || wake.Before(until)) {
				until = wake
				again.Reset(wake.Sub(last))
			}
			held |= parts
		}
	}
}
