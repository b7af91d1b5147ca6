package server

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

const (
	// queued is the maximum number of bytes that are queued for one client while its container
	// runs.
	queued = 128 << 10
	// queuedLast is the maximum once the container has ended. It is large enough for the content of
	// pipes of the default maximum size. So the end of the container can be reported before the
	// client has read everything.
	queuedLast = 4 << 20
	// patience is how long a client that reads nothing may block a container. After that its output
	// is dropped, and if it reads again it receives a report of the loss. There is no better
	// criterion for a client behind an API server. The API server's connection stays open when the
	// client's program pauses, and also when the client's machine has gone.
	patience = 5 * time.Minute
)

// A client is attached to the streams of a container.
//
//	pumps --put--> frames --send--> connection
//	      <--room--
type client struct {
	conn net.Conn
	want [3]bool       // which streams it wants
	end  bool          // whether it supports wire.StreamEnd
	more chan struct{} // capacity 1; frames were queued, or no more will be
	room chan struct{} // capacity 1; frames were sent
	gone chan struct{} // closed when the connection has ended

	mu     sync.Mutex
	frames [][]byte
	size   int       // size of all queued frames in bytes, including the frame that is being sent
	took   time.Time // time of the last successful send
	missed int64     // number of bytes dropped since the client stopped reading; if it is positive, nothing more is queued
	over   bool      // whether no more frames will be queued
	hungUp bool      // whether gone is closed
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

// put queues output for the client. While the container runs, it waits for space in the queue. The
// wait ends when patience has passed since the last successful send, and since began, when the
// container was first blocked.
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

// left returns how much longer the client may block a container that has been blocked since began.
func (c *client) left(began time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.took.After(began) {
		began = c.took
	}
	return time.Until(began.Add(patience))
}

// tryPut queues output. It drops the output if the client has disconnected or stopped reading for
// too long. It returns false if the queue is full.
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

// miss is called for a client whose queue stays full. n bytes are dropped, and later output is only
// counted.
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

// send sends queued frames until no more will be queued. Then it closes the connection.
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

// next returns the next frame. If there is none, over reports whether the last frame was returned,
// and last is the error message for the client if it missed output.
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
