package server

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

const (
	// queued bounds the bytes queued for one client while its container runs.
	queued = 128 << 10
	// queuedLast is the bound once the container has ended. Pipes of the default maximum size fit,
	// so that the end can be reported without waiting for the client.
	queuedLast = 4 << 20
	// patience is how long a client that reads nothing may block a container. Later it is told what
	// it missed, when it reads again. There is no better criterion for a reader behind an API
	// server: the API server's connection stays open both when the reader's program pauses and when
	// its machine is gone.
	patience = 5 * time.Minute
)

// A client is attached to a container's streams.
//
//	pumps --put--> frames --send--> connection
//	      <--room--
type client struct {
	conn net.Conn
	want [3]bool       // by stream
	end  bool          // it understands wire.StreamEnd
	more chan struct{} // capacity 1: frames were queued, or no more will be
	room chan struct{} // capacity 1: frames were sent
	gone chan struct{} // closed when the connection has ended

	mu     sync.Mutex
	frames [][]byte
	size   int       // bytes of frames, including the one that is being sent
	took   time.Time // time of the last successful send
	missed int64     // bytes dropped since the client stopped reading; once it is positive, nothing more is queued
	over   bool      // no more frames will be queued
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

// put queues output. While the container runs it waits for room, until patience has passed since
// began, when the container was first blocked, or since the client's last successful send.
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

// left returns how long the client may still block a container that has been blocked since began.
func (c *client) left(began time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.took.After(began) {
		began = c.took
	}
	return time.Until(began.Add(patience))
}

// tryPut queues output, or drops it if the client is gone or was given up. It returns false if
// there is no room.
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

// miss gives up a client that has no room for n bytes: later output is only counted.
func (c *client) miss(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missed == 0 {
		c.missed = int64(n)
	}
}

// finish is called when no more output will be queued.
func (c *client) finish() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	ring(c.more)
}

// leave closes the connection to the client.
func (c *client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hungUp {
		c.hungUp = true
		close(c.gone)
		c.conn.Close()
	}
}

// send sends queued frames until no more will be queued, and then closes the connection.
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

// next returns the next frame. If there is none, over reports whether none will follow, and last is
// the error message for the client if it missed output.
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

// frameHead is the size of a frame's header.
var frameHead = len(wire.Frame(0, nil))
