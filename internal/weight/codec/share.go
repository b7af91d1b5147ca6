package codec

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Bounds of what all peers of this process together send in large messages.
const (
	small       = 16 << 10         // bytes of a message that waits for nothing
	atOnce      = 16 << 20         // bytes of large messages that are received, decoded or in use at a time
	receiveTime = 10 * time.Second // for a large message, once it has its share
	useTime     = 30 * time.Second // how long it keeps that at most once it has come
	leastTime   = time.Second      // of both, while others wait, and a second more
	leastRate   = 4 << 20          // for each so many bytes
)

// large is what large messages have. All clients share it, as they share the process's memory.
var large = pool{free: atOnce}

// A pool hands out bytes in the order of asking. While somebody waits, a message has less time. A
// peer that was slow before waits behind those that were not.
type pool struct {
	mu    sync.Mutex
	free  int64
	held  []*share
	queue []*waiter
}

// A waiter is granted its bytes when ready is closed.
type waiter struct {
	slow  int // how often its peer was slow
	size  int64
	ready chan struct{}
}

// A share is what a large message has of the pool. The pool's mutex guards it.
type share struct {
	size   int64
	slow   bool // it did not come in time
	since  time.Time
	late   *time.Timer // closes the connection until the message has come, then frees the share
	closed func() bool // stops what frees the share at the end of the connection
}

// acquire waits for bytes of a peer until ctx ends.
func (p *pool) acquire(ctx context.Context, in *Inflow, size int64) error {
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
	for _, s := range p.held {
		s.late.Reset(time.Until(s.since.Add(s.leastTime())))
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
		p.grant()
	} else {
		p.release(size)
	}
	return context.Cause(ctx)
}

// release gives bytes back. The caller holds mu.
func (p *pool) release(size int64) {
	p.free += size
	p.grant()
}

// grant gives the first who wait what is free. The caller holds mu.
func (p *pool) grant() {
	for len(p.queue) > 0 && p.free >= p.queue[0].size {
		p.free -= p.queue[0].size
		close(p.queue[0].ready)
		p.queue = slices.Delete(p.queue, 0, 1)
	}
}

// hold makes the share of a message for which bytes were acquired. When it does not come in time,
// end is called.
func (p *pool) hold(c *conn, size int64, end func()) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &share{size: size}
	p.keep(s, receiveTime, func() {
		p.mu.Lock()
		if !s.slow {
			s.slow = true
			c.in.slow++
		}
		p.mu.Unlock()
		end()
	})
	s.closed = context.AfterFunc(c.ctx, func() { p.drop(s) })
	p.held = append(p.held, s)
	return s
}

// keep calls f after a time, or sooner while somebody waits. The caller holds mu.
func (p *pool) keep(s *share, atMost time.Duration, f func()) {
	if len(p.queue) > 0 {
		atMost = s.leastTime()
	}
	s.since, s.late = time.Now(), time.AfterFunc(atMost, f)
}

// came lets a message that has come keep its share while it may be in use.
func (p *pool) came(s *share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.held, s) {
		s.late.Stop()
		p.keep(s, useTime, func() { p.drop(s) })
	}
}

// drop frees a share. It may be called more than once.
func (p *pool) drop(s *share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.held, s)
	if at < 0 {
		return
	}
	p.held = slices.Delete(p.held, at, at+1)
	s.late.Stop()
	s.closed()
	p.release(s.size)
}

// isHeld reports whether a share was not freed.
func (p *pool) isHeld(s *share) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.held, s)
}

// leastTime is how long a message keeps its share while others wait.
func (s *share) leastTime() time.Duration {
	return leastTime + time.Duration(s.size)*time.Second/leastRate
}
