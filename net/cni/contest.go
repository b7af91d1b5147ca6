package cni

import "time"

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

// The kinds of items that this package repairs; package bridge names the others.
const (
	itemTable    = "table"
	itemPort     = "port"
	itemFirewall = "firewall"
)

const (
	// freeRepairs is how often an item is repaired at once, before it counts as contested.
	freeRepairs = 5
	// firstPause and longestPause bound the time between repairs of a contested item.
	firstPause, longestPause = time.Second, 5 * time.Minute
	// peace is how long an item must stay right until its repairs are forgotten.
	peace = 15 * time.Minute
)

// contest decides when an item may be repaired. A program that removes what islet puts
// back would otherwise keep both busy:
//
//	right --damaged--> repaired at once --5 times--> contested: after 1 s, 2 s ... 5 min
//	  ^----------------15 min without damage-----------'
//
// A repair that fails pauses from its first time on. It is not safe for concurrent use.
type contest struct{ items map[item]*round }

type round struct {
	times, failed int
	last, next    time.Time
	told          bool // that it is contested, or cannot be repaired
}

// held reports whether the item must wait, and until when.
func (c *contest) held(i item, now time.Time) (until time.Time, held bool) {
	r := c.items[i]
	if r == nil || !now.Before(r.next) {
		return time.Time{}, false
	}
	return r.next, true
}

// repaired notes a repair, or that it failed. It reports whether that makes the item one
// that a person must learn about now.
func (c *contest) repaired(i item, failed bool, now time.Time) (tell bool) {
	if c.items == nil {
		c.items = map[item]*round{}
	}
	r := c.items[i]
	if r == nil || now.Sub(r.last) >= peace {
		r = &round{}
		c.items[i] = r
	}
	r.times, r.last = r.times+1, now
	if failed {
		r.failed++
	} else {
		r.failed = 0
	}
	if pauses := max(r.times-freeRepairs, r.failed); pauses > 0 {
		r.next = now.Add(pause(pauses))
		tell = !r.told
		r.told = true
	}
	return tell
}

// pause is the n-th pause, from 1.
func pause(n int) time.Duration { return min(firstPause<<min(n-1, 20), longestPause) }

// failures is how often in a row the repair of an item failed.
func (c *contest) failures(i item) int {
	if r := c.items[i]; r != nil {
		return r.failed
	}
	return 0
}

// forget drops the items that have been right for long.
func (c *contest) forget(now time.Time) {
	for i, r := range c.items {
		if now.Sub(r.last) >= peace {
			delete(c.items, i)
		}
	}
}

// contested are the items that are repaired with pauses now, and until when they count.
func (c *contest) contested() map[item]time.Time {
	out := map[item]time.Time{}
	for i, r := range c.items {
		if r.told {
			out[i] = r.last.Add(peace)
		}
	}
	return out
}
