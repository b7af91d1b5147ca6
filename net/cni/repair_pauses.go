package cni

import (
	"time"

	"github.com/islet-edge/islet/net/bridge"
)

// An item is one object that the built-in network owns on the node.
type item struct {
	kind string // table, bridge, port, address, route, sysctl or firewall
	name string
}

func (i item) String() string {
	switch i.kind {
	case itemTable:
		return "nftables table " + i.name
	case itemPort:
		return "port " + i.name
	case itemFirewall:
		return "the rules for pods in firewall chain " + i.name
	}
	return i.kind + " " + i.name
}

// These are the kinds of items that this package repairs. Package bridge defines the other kinds.
const (
	itemTable    = "table"
	itemPort     = "port"
	itemFirewall = "firewall"
)

// RepairedItems returns all kinds of items with which Config.OnRepair is called.
func RepairedItems() []string {
	return []string{itemTable, itemPort, itemFirewall, bridge.FaultBridge, bridge.FaultAddress, bridge.FaultRoute, bridge.FaultSysctl}
}

const (
	// freeRepairs is the number of repairs of an item before pauses begin. After that, an item counts as contested.
	freeRepairs = 5
	// firstPause and longestPause are the minimum and maximum pause between two repairs of a contested item.
	firstPause, longestPause = time.Second, 5 * time.Minute
	// quietTime is the time without damage after which the repairs of an item are forgotten.
	quietTime = 15 * time.Minute
)

// repairSchedule decides when an item may be repaired. If another program removes an item repeatedly, the repairs are delayed by growing
// pauses, which prevents a busy loop:
//
//	intact --damaged--> repaired at once --5 times--> contested: after 1 s, 2 s ... 5 min
//	  ^-----------------15 min without damage-----------'
//
// After a failed repair there is always a pause. It is not safe for concurrent use.
type repairSchedule struct{ items map[item]*itemRepairs }

type itemRepairs struct {
	times, failed int
	last, next    time.Time
	reported      bool // an event has reported that the item is contested or cannot be repaired
}

// isHeld reports whether the repair of an item must wait, and returns the end of the wait.
func (c *repairSchedule) isHeld(i item, now time.Time) (until time.Time, held bool) {
	r := c.items[i]
	if r == nil || !now.Before(r.next) {
		return time.Time{}, false
	}
	return r.next, true
}

// recordRepair records a successful or failed repair. It returns true if an event about the item must be recorded.
func (c *repairSchedule) recordRepair(i item, failed bool, now time.Time) (tell bool) {
	if c.items == nil {
		c.items = map[item]*itemRepairs{}
	}
	r := c.items[i]
	if r == nil || now.Sub(r.last) >= quietTime {
		r = &itemRepairs{}
		c.items[i] = r
	}
	r.times, r.last = r.times+1, now
	if failed {
		r.failed++
	} else {
		r.failed = 0
	}
	if pauses := max(r.times-freeRepairs, r.failed); pauses > 0 {
		r.next = now.Add(pauseLength(pauses))
		tell = !r.reported
		r.reported = true
	}
	return tell
}

// pauseLength returns the length of the n-th pause, counted from 1.
func pauseLength(n int) time.Duration { return min(firstPause<<min(n-1, 20), longestPause) }

// failedRepairs returns the number of consecutive failed repairs of an item.
func (c *repairSchedule) failedRepairs(i item) int {
	if r := c.items[i]; r != nil {
		return r.failed
	}
	return 0
}

// removeUndamaged removes items that have been undamaged for quietTime.
func (c *repairSchedule) removeUndamaged(now time.Time) {
	for i, r := range c.items {
		if now.Sub(r.last) >= quietTime {
			delete(c.items, i)
		}
	}
}

// pausedItems returns the items that are contested or cannot be repaired. The value is the time at which the item no longer counts as
// contested.
func (c *repairSchedule) pausedItems() map[item]time.Time {
	out := map[item]time.Time{}
	for i, r := range c.items {
		if r.reported {
			out[i] = r.last.Add(quietTime)
		}
	}
	return out
}
