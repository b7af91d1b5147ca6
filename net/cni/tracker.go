package cni

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/notice"
)

const (
	// gatherTime is the time between the first notice and the repair. One command of another program often causes several notices.
	gatherTime = 20 * time.Millisecond
	// repairInterval is the minimum time between two repairs. checkInterval is the minimum time between two checks if all notices were
	// about objects of other programs.
	repairInterval, checkInterval = 200 * time.Millisecond, time.Second
	// pauseRatio limits the CPU time for checks. The pause after a check is pauseRatio times the duration of the check, but at most
	// checkInterval. A check takes long if other programs have thousands of nftables chains.
	pauseRatio = 20
	// reopenPause is the pause before the tracker listens to the kernel again after an error.
	reopenPause = time.Second
	// maxChains is the maximum number of firewall chain names that are stored.
	maxChains = 64
)

// partSet is a set of parts of the built-in network that may have been changed.
type partSet uint

const (
	partTable    partSet = 1 << iota // the nftables table and the bridge's route_localnet
	partBridge                       // the bridge, its addresses and sysctls
	partRoutes                       // the routes of the bridge
	partPorts                        // the veths of sandboxes
	partFirewall                     // the rules in other programs' tables
	partSysctls                      // the sysctls whose changes cause no notice
	partSuspects                     // the veths of tracker.suspects
	partRange                        // the addresses and default gateways of the machine, which must not be in the pods' networks
	allParts     = partTable | partBridge | partRoutes | partPorts | partFirewall | partSuspects | partRange
)

// A vethPair identifies the veth pair between a sandbox and the bridge.
type vethPair struct{ id, path, pod string }

// describe returns a description for events and logs.
func (w vethPair) describe() string {
	if w.pod == "" {
		return fmt.Sprintf("of sandbox %.13s (%s)", w.id, vethName(w.id))
	}
	return fmt.Sprintf("of pod %s (%s)", w.pod, vethName(w.id))
}

// A tracker records which parts of the built-in network must be checked, and counts the repairs.
//
//	kernel --notice--> handleNotice --parts--> repairLoop --> repairParts
//	                                                Ready -----^
type tracker struct {
	signal  chan struct{} // capacity 1; a value means that parts may be damaged, or that the network was installed or removed
	listens atomic.Bool   // listen receives notices
	index   atomic.Int64  // the interface index of the bridge

	mu            sync.Mutex
	damaged       partSet
	wires         map[string]vethPair // by the name of the veth end on the node
	suspects      map[string]bool     // names of wires that a notice was about; the notice may be older than the wire
	lostSandboxes map[string]bool     // sandboxes that have to be replaced
	allowedChains map[string]bool     // firewall chains with rules that let pods through
	stats         Repairs
	contested     map[item]time.Time // by item: the end of the time in which the item counts as contested
	conflict      bridge.Conflict    // another network of the machine that overlaps with the pods' network

	repairMu sync.Mutex // serializes repair and guards the fields below; locked before Network.operations
	contest  repairSchedule
	errs     map[partSet]error // by part: the error of its last repair
	failed   map[partSet]int   // by part: the number of consecutive failed checks
}

func newTracker() *tracker {
	return &tracker{
		signal: make(chan struct{}, 1),
		wires:  map[string]vethPair{}, suspects: map[string]bool{}, lostSandboxes: map[string]bool{}, allowedChains: map[string]bool{},
		errs: map[partSet]error{}, failed: map[partSet]int{},
	}
}

// Repairs counts the items of the built-in network that were repaired since the agent started.
type Repairs struct {
	Count     int
	Last      time.Time
	LastItem  string   // the last repaired item
	Contested []string // items that another program removes again and again
	Conflict  string   // another network of the machine that overlaps with the pods' network; empty if there is none
}

// Repairs returns the number of repaired items, the last repaired item, the contested items, and the problems that cannot be repaired.
func (n *Network) Repairs() Repairs {
	p := n.currentPhase()
	k := n.tracker
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.stats
	if p.installed && !p.moved {
		out.Conflict = k.conflict.Text
	}
	for i, until := range k.contested {
		if time.Now().Before(until) {
			out.Contested = append(out.Contested, i.String())
		}
	}
	slices.Sort(out.Contested)
	return out
}

func (k *tracker) countRepair(i item, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stats.Count, k.stats.Last, k.stats.LastItem = k.stats.Count+1, now, i.String()
}

func (k *tracker) addWire(w vethPair) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wires[vethName(w.id)] = w
	delete(k.lostSandboxes, w.id)
}

func (k *tracker) removeWire(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.wires, vethName(id))
	delete(k.suspects, vethName(id))
}

// unmarkLost removes the mark of markLost.
func (k *tracker) unmarkLost(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lostSandboxes, id)
}

// markLost records that a sandbox has to be replaced. Its port is no longer repaired.
func (k *tracker) markLost(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.wires, vethName(id))
	delete(k.suspects, vethName(id))
	k.lostSandboxes[id] = true
}

func (k *tracker) isLost(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lostSandboxes[id]
}

func (k *tracker) hasSandbox(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, found := k.wires[vethName(id)]
	return found
}

func (k *tracker) copyWires() map[string]vethPair {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.wires)
}

// recordChain records a firewall chain. It returns true if the chain was not recorded yet. The number of recorded chains is limited,
// because a firewall may create chains with new names again and again.
func (k *tracker) recordChain(chain string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.allowedChains[chain] {
		return false
	}
	if len(k.allowedChains) >= maxChains {
		clear(k.allowedChains)
	}
	k.allowedChains[chain] = true
	return true
}

func (k *tracker) admittedChains() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.allowedChains))
}

// markDamaged adds parts that have to be checked.
func (k *tracker) markDamaged(d partSet) {
	k.mu.Lock()
	k.damaged |= d
	k.mu.Unlock()
	k.wakeLoop()
}

// takeSuspects returns the wires to check: the suspects, or all wires. Afterwards there are no suspects.
func (k *tracker) takeSuspects(all bool) map[string]vethPair {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := maps.Clone(k.wires)
	if !all {
		maps.DeleteFunc(out, func(end string, _ vethPair) bool { return !k.suspects[end] })
	}
	clear(k.suspects)
	return out
}

// addSuspect records that a wire must be checked again. The kernel does not repeat its notice.
func (k *tracker) addSuspect(end string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, isPort := k.wires[end]; isPort {
		k.suspects[end] = true
	}
}

func (k *tracker) takeParts() partSet {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.damaged
	k.damaged = 0
	return d
}

func (k *tracker) pendingParts() partSet {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.damaged
}

func (k *tracker) wakeLoop() {
	select {
	case k.signal <- struct{}{}:
	default:
	}
}

// handleNotice marks the parts that a notice affects. It does not block.
func (n *Network) handleNotice(m notice.Notice) { n.tracker.markDamaged(n.affectedParts(m)) }

// affectedParts returns the parts that a notice may affect. For all other notices it returns partSysctls. The kernel sends no notices about
// these sysctls, so any other notice is used as an occasion to check them.
func (n *Network) affectedParts(m notice.Notice) partSet {
	index := int(n.tracker.index.Load())
	switch m.Kind {
	case notice.NoticesLost:
		return allParts
	case notice.Link:
		return n.affectedByLink(m)
	case notice.Address:
		switch {
		case m.Index == index && m.Gone:
			return partBridge | partRoutes | partRange
		case !m.Addr.IsLinkLocalUnicast(): // each veth of a pod gets a link-local address
			return partRange
		}
	case notice.Route:
		switch {
		case m.Gone && m.Index == index:
			return partRoutes
		case m.Default:
			return partRange
		}
	case notice.Sysctl:
		if m.Index <= 0 || m.Index == index { // the kernel also reports the sysctls of each new link, such as the veth of a pod
			return partBridge
		}
	case notice.Rules:
		if m.Name == tableName {
			return partTable
		}
		return partFirewall
	case notice.Elements:
		if m.Name == tableName {
			return partTable
		}
	}
	return partSysctls
}

func (n *Network) affectedByLink(m notice.Notice) partSet {
	k := n.tracker
	index := int(k.index.Load())
	if m.Name == n.cfg.Bridge || m.Index == index {
		if m.Gone || !m.Up || m.Name != n.cfg.Bridge || m.Index != index {
			return partBridge | partPorts | partRoutes
		}
		return partSysctls
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, isPort := k.wires[m.Name]; isPort && (m.Gone || !m.Up || m.Master != index) {
		k.suspects[m.Name] = true
		return partSuspects
	}
	return partSysctls
}

// repairLoop repairs the built-in network while it is installed, until ctx ends. It is idle while the kernel sends no notice.
func (n *Network) repairLoop(ctx context.Context) {
	for ctx.Err() == nil {
		if p := n.currentPhase(); !p.installed || p.moved {
			select {
			case <-n.tracker.signal:
			case <-ctx.Done():
			}
			continue
		}
		if err := n.receiveNotices(ctx); err != nil && ctx.Err() == nil {
			n.cfg.Log.Warn("cannot watch the pod network; damage is found by polling", "error", err)
			select {
			case <-time.After(reopenPause):
			case <-ctx.Done():
			}
		}
	}
}

// receiveNotices receives the kernel's notices and repairs the built-in network, while it is installed.
func (n *Network) receiveNotices(ctx context.Context) error {
	l, err := notice.Open(n.cfg.Host)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx, n.handleNotice) }()
	defer func() {
		n.tracker.listens.Store(false)
		cancel()
		<-ended
	}()
	n.tracker.listens.Store(true)
	n.tracker.markDamaged(allParts) // parts may have changed before the listener was open
	return n.repairOnNotice(ctx, ended)
}

// repairOnNotice starts a repair soon after a notice. Further notices do not postpone the repair.
func (n *Network) repairOnNotice(ctx context.Context, ended chan error) error {
	due, again := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	due.Stop()
	again.Stop()
	var last, at time.Time // end of the last repair; time of the next repair, or zero if none is due
	var took time.Duration // duration of the last repair
	var held partSet       // parts to check when the timer again fires; checks of other parts do not stop this timer
	var until time.Time    // time at which the timer again fires
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			ended <- nil // listen receives it
			return err
		case <-again.C:
			n.tracker.markDamaged(held)
			held = 0
		case <-n.tracker.signal:
			if p := n.currentPhase(); !p.installed || p.moved {
				return nil
			}
			pause := min(max(repairInterval, pauseRatio*took), checkInterval)
			if n.tracker.pendingParts()&allParts == 0 {
				pause = checkInterval
			}
			now := time.Now()
			if next := now.Add(max(gatherTime, last.Add(pause).Sub(now))); at.IsZero() || next.Before(at) {
				at = next
				due.Reset(next.Sub(now))
			}
		case <-due.C:
			at = time.Time{}
			began := time.Now()
			wake, parts, _ := n.repairParts(n.tracker.takeParts(), false) // Ready returns the error
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
