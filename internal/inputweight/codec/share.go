package codec

import (
	"context"
	"slices"
	"sync"
	"time"
)

// These constants limit the large messages of all peers of this process together.
const (
	maxSmall     = 16 << 10         // maximum size in bytes of a message that needs no share
	poolSize     = 16 << 20         // maximum bytes of all large messages that are being received, decoded or used
	receiveTime  = 10 * time.Second // the maximum time to receive a large message after it has got its share
	useTime      = 30 * time.Second // the maximum time for which a received message keeps its share
	shortestTime = time.Second      // replaces receiveTime and useTime while other messages wait; see minTime
	leastRate    = 4 << 20          // bytes per second; a message gets the time that it needs at this rate in addition to shortestTime
)

// largeMessages is the pool for large messages. All clients share this pool, because they share the
// process's memory.
var largeMessages = pool{free: poolSize}

// A pool grants bytes in the order of the requests. While requests wait, messages keep their shares for a shorter
// time. The request of a peer that was slow before is queued behind the requests of other peers.
type pool struct {
	mu         sync.Mutex
	free       int64
	heldShares []*share
	queue      []*waiter
}

// A waiter is a request that waits. The channel ready is closed when the requested bytes are
// granted.
type waiter struct {
	slow  int // number of times that the peer was slow
	size  int64
	ready chan struct{}
}

// A share is a large message's part of the pool. The pool's mutex guards it.
type share struct {
	size     int64
	slow     bool // the message was received too slowly
	since    time.Time
	timer    *time.Timer // closes the connection while the message is incomplete; afterwards frees the share
	stopFree func() bool // cancels the function that frees the share when the connection ends
}

// acquire blocks until the bytes are granted or ctx ends.
func (p *pool) acquire(ctx context.Context, in *ReceiveLimit, size int64) error {
	p.mu.Lock()
	if len(p.queue) == 0 && p.free >= size {
		p.free -= size
		p.mu.Unlock()
		return nil
	}
	w := &waiter{in.slow, size, make(chan struct{})}
	at := slices.IndexFunc(p.queue, func(o *waiter) bool { return o.slow > w.slow })
	if at < 0 {
		at = len(p.queue)
	}
	p.queue = slices.Insert(p.queue, at, w)
	for _, s := range p.heldShares {
		s.timer.Reset(time.Until(s.since.Add(s.minTime())))
	}
	p.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := slices.Index(p.queue, w); at >= 0 {
		p.queue = slices.Delete(p.queue, at, at+1)
		p.grantRequests()
	} else {
		p.release(size)
	}
	return context.Cause(ctx)
}

// release returns bytes to the pool. The caller holds mu.
func (p *pool) release(size int64) {
	p.free += size
	p.grantRequests()
}

// grantRequests grants the requests at the head of the queue while enough bytes are free. The caller holds
// mu.
func (p *pool) grantRequests() {
	for len(p.queue) > 0 && p.free >= p.queue[0].size {
		p.free -= p.queue[0].size
		close(p.queue[0].ready)
		p.queue = slices.Delete(p.queue, 0, 1)
	}
}

// addShare creates the share of a message whose bytes were acquired. If the message is received too slowly, addShare
// calls the function end.
func (p *pool) addShare(c *conn, size int64, end func()) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &share{size: size}
	p.startTimer(s, receiveTime, func() {
		p.mu.Lock()
		if !s.slow {
			s.slow = true
			c.in.slow++
		}
		p.mu.Unlock()
		end()
	})
	s.stopFree = context.AfterFunc(c.ctx, func() { p.freeShare(s) })
	p.heldShares = append(p.heldShares, s)
	return s
}

// startTimer starts the timer of a share. The timer calls f after the time atMost, or after a shorter time if
// requests wait. The caller holds mu.
func (p *pool) startTimer(s *share, atMost time.Duration, f func()) {
	if len(p.queue) > 0 {
		atMost = s.minTime()
	}
	s.since, s.timer = time.Now(), time.AfterFunc(atMost, f)
}

// setReceived starts the timer that limits how long a complete message may keep its share.
func (p *pool) setReceived(s *share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.heldShares, s) {
		s.timer.Stop()
		p.startTimer(s, useTime, func() { p.freeShare(s) })
	}
}

// freeShare frees a share. Further calls have no effect.
func (p *pool) freeShare(s *share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.heldShares, s)
	if at < 0 {
		return
	}
	p.heldShares = slices.Delete(p.heldShares, at, at+1)
	s.timer.Stop()
	s.stopFree()
	p.release(s.size)
}

// isHeld reports whether a share has not been freed.
func (p *pool) isHeld(s *share) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.heldShares, s)
}

// minTime returns the time for which a message may keep its share of the pool while other messages
// wait for a share.
func (s *share) minTime() time.Duration {
	return shortestTime + time.Duration(s.size)*time.Second/leastRate
}
