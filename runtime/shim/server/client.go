package server

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

const (
	// queued bounds what is held for one client while its container runs.
	queued = 128 << 10
	// queuedLast bounds it once the container has ended: the pipes of one that may not
	// enlarge them fit, and its end is known without waiting for the client.
	queuedLast = 4 << 20
	// patience is how long clients that take nothing may hold a container up. They are then
	// told what they have missed, when they take something again. It is the only means against
	// a reader behind an API server: whether its program has stopped for a moment or its machine
	// is gone, the API server's own connection lives in both cases.
	patience = 5 * time.Minute
)

// A client is attached to a container's streams.
//
//	pumps --put--> frames --send--> connection
//	      <--room--
type client struct {
	conn net.Conn
	want [3]bool       // by stream
	end  bool          // it knows wire.StreamEnd
	more chan struct{} // capacity 1: there are frames, or no more will come
	room chan struct{} // capacity 1: frames were sent
	gone chan struct{} // closed when the connection has ended

	mu     sync.Mutex
	frames [][]byte
	size   int       // of frames, and of the one that is being sent
	took   time.Time // when it last took something
	missed int64     // bytes that came while it took nothing; from the first on it gets none
	over   bool      // no more will come
	hungUp bool      // gone is closed
}

func newClient(nc net.Conn, r wire.AttachRequest) *client {
	return &client{
		conn: nc, want: [3]bool{wire.StreamStdout: r.Stdout, wire.StreamStderr: r.Stderr}, end: r.End,
		more: make(chan struct{}, 1), room: make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put queues output. It waits for room while the container runs: until patience after began, which
// is when the container was first held up, or after the client has taken something.
func (c *client) put(stream byte, p []byte, began time.Time, ended <-chan struct{}) {
	for bound := queued; ; {
		if c.tryPut(stream, p, bound) {
			return
		}
		if bound == queuedLast {
			c.miss(len(p))
			return
		}
		late := time.NewTimer(c.left(began))
		select {
		case <-c.room:
		case <-ended:
			bound = queuedLast
		case <-late.C:
			c.miss(len(p))
			return
		case <-c.gone:
		}
		late.Stop()
	}
}

// left returns how long it may still hold up a container that it, or another client, has held up since
// began.
func (c *client) left(began time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.took.After(began) {
		began = c.took
	}
	return time.Until(began.Add(patience))
}

// tryPut queues output, or drops that of a client which is not to get any. It returns false
// if there is no room.
func (c *client) tryPut(stream byte, p []byte, bound int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.hungUp:
		return true
	case c.missed > 0:
		c.missed += int64(len(p))
		return true
	case c.size > 0 && c.size+len(p) > bound:
		return false
	}
	c.frames = append(c.frames, wire.Frame(stream, p))
	c.size += len(p)
	ring(c.more)
	if c.size < bound {
		ring(c.room) // for the other stream
	}
	return true
}

// miss gives a client up that has no room for n bytes: what comes later is counted only.
func (c *client) miss(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missed == 0 {
		c.missed = int64(n)
	}
}

// finish says that nothing more will come.
func (c *client) finish() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	ring(c.more)
}

// leave says that the client has gone.
func (c *client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hungUp {
		c.hungUp = true
		close(c.gone)
		c.conn.Close()
	}
}

// send sends what is queued until no more will come, and then closes the connection.
func (c *client) send() {
	defer c.leave()
	for {
		frame, over, last := c.next()
		switch {
		case frame != nil:
			if _, err := c.conn.Write(frame); err != nil {
				return
			}
			c.sent(len(frame))
		case over:
			if c.end {
				c.conn.Write(wire.Frame(wire.StreamEnd, []byte(last)))
			}
			return
		default:
			select {
			case <-c.more:
			case <-c.gone:
				return
			}
		}
	}
}

// next takes the next frame; if there is none, over says whether one will come, and last
// what the client has missed.
func (c *client) next() (frame []byte, over bool, last string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.frames) > 0 {
		frame, c.frames = c.frames[0], c.frames[1:]
		return frame, false, ""
	}
	c.frames = nil
	if c.missed > 0 {
		last = fmt.Sprintf("at least %d bytes of output are missing: the reader took nothing for too long", c.missed)
	}
	return nil, c.over || c.missed > 0, last
}

func (c *client) sent(n int) {
	c.mu.Lock()
	c.size -= n - frameHead
	c.took = time.Now()
	c.mu.Unlock()
	ring(c.room)
}

// frameHead is what a frame has beside its payload.
var frameHead = len(wire.Frame(0, nil))
