package codec

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// idle reports whether the pool is unused and has no waiters.
func (p *pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free == poolSize && len(p.heldShares)+len(p.queue) == 0
}

// TestSlowPeers checks peers that stall in large messages and reconnect repeatedly. Another peer waits at most for the minimum time of one
// message. If no other message waits, a message may take the maximum time.
func TestSlowPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make([]*ReceiveLimit, 4*poolSize/most)
		for i := range slow {
			slow[i] = &ReceiveLimit{limit: most}
		}
		began := time.Now()
		alone := slow[0].wrapConn(&net.UnixConn{}).(*conn)
		if err := alone.waitForShare(&message{}, most); err != nil {
			t.Fatal(err)
		}
		<-alone.ctx.Done()
		if time.Since(began) != receiveTime {
			t.Errorf("a message without waiters had %v", time.Since(began))
		}
		least := (&share{size: most}).minTime()
		for round := range 5 {
			for _, in := range slow {
				c := in.wrapConn(&net.UnixConn{}).(*conn)
				go func() { _ = c.waitForShare(&message{}, most) }()
			}
			synctest.Wait()
			if round == 0 {
				time.Sleep(time.Minute) // all peers have been slow
				if !largeMessages.idle() {
					t.Fatal("shares are kept")
				}
				continue
			}
			asked := time.Now()
			c, m := (&ReceiveLimit{limit: most}).wrapConn(&net.UnixConn{}).(*conn), &message{}
			if err := c.waitForShare(m, maxSmall+1); err != nil || time.Since(asked) > least {
				t.Errorf("round %d: one that is never slow waits for %v: %v", round, time.Since(asked), err)
			}
			c.in.keepShare(m)
			c.in.release()
			_ = c.Close()           // fails, because no connection exists
			time.Sleep(time.Minute) // in the bubble
		}
		if !largeMessages.idle() {
			t.Error("shares are kept")
		}
	})
}

// TestAbandoned checks that a waiter gets no bytes after its connection is closed. The next waiter must get them.
func TestAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func() *conn { return (&ReceiveLimit{limit: most}).wrapConn(&net.UnixConn{}).(*conn) }
		first, second, third := open(), open(), open()
		m, got := &message{}, make(chan error, 2)
		if err := first.waitForShare(m, poolSize-most); err != nil {
			t.Fatal(err)
		}
		go func() { got <- second.waitForShare(&message{}, poolSize) }()
		synctest.Wait()
		go func() { got <- third.waitForShare(&message{}, most) }()
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("a waiter was served before the first waiter")
		}
		_ = second.Close() // fails, because no socket exists
		if err := <-got; err != net.ErrClosed {
			t.Errorf("the waiter whose connection was closed got: %v", err)
		}
		if err := <-got; err != nil {
			t.Errorf("the next waiter got: %v", err)
		}
		_, _ = first.Close(), third.Close()
		synctest.Wait()
		if !largeMessages.idle() {
			t.Error("shares are kept")
		}
	})
}
