package review

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/islet-edge/islet/internal/connlimit"
)

const (
	maxConcurrent = 8   // maximum number of concurrent reviews
	maxOfNetwork  = 4   // maximum number of concurrent reviews for one network
	maxWaiting    = 256 // maximum number of waiting reviews
	reservedTurns = 2   // number of concurrent reviews that only known tokens and authenticated addresses can use
	// An address with maxRejected recent rejections waits until one is forgotten.
	maxRejected  = 32
	forgetEvery  = time.Second // much shorter than timeout, because several clients may have the same address
	maxAddresses = 256         // maximum number of addresses whose rejections are remembered
)

// errManyReviews means that a review waited for too long, or was removed from the queue.
var errManyReviews = errors.New("too many reviews wait")

// turns decides when reviews begin. The rules are in doc.go.
type turns struct {
	limitsRejected bool // maxRejected applies

	mu        sync.Mutex
	free      int
	waiting   map[*turn]bool
	addresses map[netip.Addr]*address
	networks  map[netip.Prefix]*network
}

// A turn is a review that waits or runs.
type turn struct {
	network *network
	address *address
	known   bool   // the same question had a positive answer before
	first   bool   // the address was authenticated before
	order   uint64 // random, so that many reviews of one address do not keep a later one waiting
	ready   chan struct{}
	dropped bool // set before ready is closed
}

// An address contains the numbers of reviews and rejections of one client address.
type address struct {
	addr             netip.Addr
	running, waiting int
	rejected         float64 // recent rejections at the time counted
	counted          time.Time
}

// A network contains the reviews for the clients of one network, as package connlimit counts networks.
type network struct {
	prefix           netip.Prefix
	running, waiting int
}

func newTurns(limitsRejected bool) *turns {
	return &turns{limitsRejected: limitsRejected, free: maxConcurrent, waiting: map[*turn]bool{},
		addresses: map[netip.Addr]*address{}, networks: map[netip.Prefix]*network{}}
}

// begin waits until a review may begin. The caller must call end after the review. The parameter known reports whether the same question
// had a positive answer before. An error means that too many reviews wait, or that ctx has ended.
func (t *turns) begin(ctx context.Context, from connlimit.Client, known bool) (end func(rejected bool), err error) {
	r := &turn{known: known, first: from.Network.IsSingleIP(), order: rand.Uint64(), ready: make(chan struct{})}
	t.mu.Lock()
	t.enterQueue(r, from)
	t.startReviews()
	t.dropExcess()
	t.mu.Unlock()
	forgotten := time.NewTicker(time.Second)
	defer forgotten.Stop()
	for {
		select {
		case <-r.ready:
			if r.dropped {
				return nil, errManyReviews
			}
			return func(rejected bool) { t.end(r, rejected) }, nil
		case <-forgotten.C: // an address at its limit may have a review again
			t.mu.Lock()
			t.startReviews()
			t.mu.Unlock()
		case <-ctx.Done():
			t.mu.Lock()
			if t.waiting[r] {
				r.dropped = true
				t.leaveQueue(r)
			}
			t.mu.Unlock()
			if !r.dropped {
				t.end(r, false)
			}
			return nil, errManyReviews
		}
	}
}

func (t *turns) enterQueue(r *turn, from connlimit.Client) {
	if r.network = t.networks[from.Network]; r.network == nil {
		r.network = &network{prefix: from.Network}
		t.networks[from.Network] = r.network
	}
	if r.address = t.addresses[from.Addr]; r.address == nil {
		t.limitAddresses()
		r.address = &address{addr: from.Addr, counted: time.Now()}
		t.addresses[from.Addr] = r.address
	}
	r.network.waiting++
	r.address.waiting++
	t.waiting[r] = true
}

// leaveQueue removes a review from the queue, and forgets records that are not needed any more.
func (t *turns) leaveQueue(r *turn) {
	delete(t.waiting, r)
	r.network.waiting--
	r.address.waiting--
	t.forgetIdle(r)
}

// startReviews starts waiting reviews while there are free places. The caller holds mu.
func (t *turns) startReviews() {
	for t.free > 0 {
		var next *turn
		for r := range t.waiting {
			if t.mayStart(r) && (next == nil || r.isBefore(next)) {
				next = r
			}
		}
		if next == nil {
			return
		}
		t.free--
		next.network.running++
		next.address.running++
		t.leaveQueue(next)
		close(next.ready)
	}
}

// mayStart reports whether a review may begin now.
func (t *turns) mayStart(r *turn) bool {
	switch {
	case r.known:
		return true
	case r.network.running >= maxOfNetwork, !r.first && t.free <= reservedTurns:
		return false
	}
	return !t.limitsRejected || r.address.recent()+float64(r.address.running) < maxRejected
}

// isBefore reports whether a review starts before another one.
func (r *turn) isBefore(o *turn) bool {
	a, b := r.address.load(), o.address.load()
	switch {
	case r.known != o.known:
		return r.known
	case r.first != o.first:
		return r.first
	case r.network.running != o.network.running:
		return r.network.running < o.network.running
	case a != b:
		return a < b
	}
	return r.order < o.order
}

// dropExcess removes reviews from a queue that is too long. It never removes the review of a known token. The caller holds mu.
func (t *turns) dropExcess() {
	for len(t.waiting) > maxWaiting {
		var last *turn
		for r := range t.waiting {
			if !r.known && (last == nil || r.isDroppedBefore(last)) {
				last = r
			}
		}
		if last == nil {
			return
		}
		last.dropped = true
		t.leaveQueue(last)
		close(last.ready)
	}
}

// isDroppedBefore reports whether a review is removed before another one.
func (r *turn) isDroppedBefore(o *turn) bool {
	a, b := r.address.load(), o.address.load()
	switch {
	case r.network.waiting != o.network.waiting:
		return r.network.waiting > o.network.waiting
	case a != b:
		return a > b
	}
	return r.order > o.order
}

func (t *turns) end(r *turn, rejected bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	r.network.running--
	r.address.running--
	if rejected {
		r.address.rejected, r.address.counted = r.address.recent()+1, time.Now()
	}
	t.forgetIdle(r)
	t.startReviews()
}

// recent returns the number of recent rejections.
func (a *address) recent() float64 {
	return max(0, a.rejected-float64(time.Since(a.counted))/float64(forgetEvery))
}

// load returns the number of reviews and of recent rejections.
func (a *address) load() float64 { return float64(a.running+a.waiting) + a.recent() }

func (a *address) isIdle() bool { return a.running+a.waiting == 0 }

// limitAddresses removes the record of an address if there are too many: the idle one with the fewest recent rejections.
func (t *turns) limitAddresses() {
	if len(t.addresses) < maxAddresses {
		return
	}
	var least *address
	for _, a := range t.addresses {
		if a.isIdle() && (least == nil || a.recent() < least.recent()) {
			least = a
		}
	}
	if least != nil {
		delete(t.addresses, least.addr)
	}
}

// forgetIdle removes the records of a network without reviews, and of an address that has no recent rejections either. The caller holds mu.
func (t *turns) forgetIdle(r *turn) {
	if n := r.network; n.running+n.waiting == 0 {
		delete(t.networks, n.prefix)
	}
	if a := r.address; a.isIdle() && a.recent() == 0 {
		delete(t.addresses, a.addr)
	}
}
