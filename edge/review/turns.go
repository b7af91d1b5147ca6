package review

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"
)

const (
	maxConcurrent = 8  // maximum number of concurrent reviews
	maxOfNetwork  = 4  // maximum number of concurrent reviews for one network
	maxWaiting    = 16 // maximum number of waiting reviews of one network
	// reservedTurns is the number of concurrent reviews that only known clients can use.
	reservedTurns = 2
	// A network without known clients gets a review only while it has less than maxRejected recent rejections. One rejection is forgotten
	// every forgetEvery.
	maxRejected = 32
	forgetEvery = 10 * time.Second
	maxNetworks = 256 // maximum number of networks whose rejections are remembered
)

var (
	errManyReviews  = errors.New("too many reviews wait")
	errManyRejected = errors.New("too many invalid tokens from the client's network")
)

// turns limits the concurrent reviews, so that clients with invalid tokens can neither keep other clients waiting nor fill the uplink.
type turns struct {
	limitsRejected bool // maxRejected applies

	mu       sync.Mutex
	free     int
	arrived  uint64 // number of reviews so far
	waiting  map[*turn]bool
	networks map[netip.Prefix]*network
}

// A turn is a review that waits or runs.
type turn struct {
	of    *network
	known bool // the same question had a positive answer before
	first bool // the client is known, by its question or by its address
	order uint64
	ready chan struct{}
}

// A network contains the reviews for the clients of one network, as package connlimit counts networks.
type network struct {
	prefix           netip.Prefix
	running, waiting int
	rejected         float64 // recent rejections at the time counted
	counted          time.Time
}

func newTurns(limitsRejected bool) *turns {
	return &turns{limitsRejected: limitsRejected, free: maxConcurrent, waiting: map[*turn]bool{}, networks: map[netip.Prefix]*network{}}
}

// begin waits until a review may begin. The caller must call end after the review. The parameter known reports whether the same question
// had a positive answer before. A network with one address is an address that was authenticated before. An error means that the network
// has too many reviews, or that ctx has ended.
func (t *turns) begin(ctx context.Context, from netip.Prefix, known bool) (end func(rejected bool), err error) {
	t.mu.Lock()
	n := t.findNetwork(from)
	t.arrived++
	r := &turn{of: n, known: known, first: known || from.IsSingleIP(), order: t.arrived, ready: make(chan struct{})}
	switch {
	case t.limitsRejected && !r.first && n.recent() >= maxRejected:
		err = errManyRejected
	case !known && n.waiting >= maxWaiting:
		err = errManyReviews
	default:
		n.waiting++
		t.waiting[r] = true
		t.startReviews()
	}
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-r.ready:
		return func(rejected bool) { t.end(n, rejected) }, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	waits := t.waiting[r]
	if waits {
		delete(t.waiting, r)
		n.waiting--
		t.forgetIdle(n)
	}
	t.mu.Unlock()
	if !waits {
		t.end(n, false)
	}
	return nil, errManyReviews
}

// startReviews starts waiting reviews while there are free places. Known clients are first, and then the networks with the fewest running
// reviews and recent rejections. The caller holds mu.
func (t *turns) startReviews() {
	for t.free > 0 {
		var next *turn
		for r := range t.waiting {
			if !r.known && r.of.running >= maxOfNetwork || !r.first && t.free <= reservedTurns {
				continue
			}
			if next == nil || r.isBefore(next) {
				next = r
			}
		}
		if next == nil {
			return
		}
		delete(t.waiting, next)
		t.free--
		next.of.waiting--
		next.of.running++
		close(next.ready)
	}
}

// isBefore reports whether a review starts before another one.
func (r *turn) isBefore(o *turn) bool {
	a, b := r.of.load(), o.of.load()
	switch {
	case r.first != o.first:
		return r.first
	case a != b:
		return a < b
	}
	return r.order < o.order
}

func (t *turns) end(n *network, rejected bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	n.running--
	if rejected {
		n.rejected, n.counted = n.recent()+1, time.Now()
	}
	t.forgetIdle(n)
	t.startReviews()
}

// recent returns the number of recent rejections.
func (n *network) recent() float64 {
	return max(0, n.rejected-float64(time.Since(n.counted))/float64(forgetEvery))
}

// load returns the number of running reviews and recent rejections.
func (n *network) load() float64 { return float64(n.running) + n.recent() }

func (n *network) isIdle() bool { return n.running+n.waiting == 0 }

// findNetwork returns the record of a network. If there are too many records, it removes the one with the fewest rejections. The caller
// holds mu.
func (t *turns) findNetwork(prefix netip.Prefix) *network {
	n := t.networks[prefix]
	if n != nil {
		return n
	}
	if len(t.networks) >= maxNetworks {
		var least *network
		for _, o := range t.networks {
			if o.isIdle() && (least == nil || o.recent() < least.recent()) {
				least = o
			}
		}
		if least != nil {
			delete(t.networks, least.prefix)
		}
	}
	n = &network{prefix: prefix, counted: time.Now()}
	t.networks[prefix] = n
	return n
}

// forgetIdle removes the record of a network that has neither reviews nor recent rejections. The caller holds mu.
func (t *turns) forgetIdle(n *network) {
	if n.isIdle() && n.recent() < 1 {
		delete(t.networks, n.prefix)
	}
}
