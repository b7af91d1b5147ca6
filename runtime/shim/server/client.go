package server

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

const (
	// maxQueued is the maximum number of bytes that are queued for one client while its container
	// runs.
	maxQueued = 128 << 10
	// queuedLast is the maximum once the container has ended. It exceeds the content of both pipes
	// at the default fs.pipe-max-size, so that the shim can report the end of the container before
	// the client has read everything.
	queuedLast = 4 << 20
	// readTimeout is how long a client that reads nothing may block a container. After that the shim
	// drops the client's output and sends an error with StreamEnd when the client reads again. The
	// connection does not show whether kubectl has only paused or its machine is gone, because the
	// API server keeps the connection open in both cases.
	readTimeout = 5 * time.Minute
)

// A client is attached to the streams of a container.
//
//	pumps --put--> frames --send--> connection
//	      <--room--
type client struct {
	conn         net.Conn
	streams      [3]bool       // requested output streams
	supportsEnd  bool          // whether the client supports wire.StreamEnd
	framesQueued chan struct{} // capacity 1; frames were queued, or finished was set
	framesSent   chan struct{} // capacity 1; frames were sent
	disconnected chan struct{} // closed when the connection has ended

	mu       sync.Mutex
	frames   [][]byte
	size     int       // size of all queued frames in bytes, including the frame that is being sent
	lastSent time.Time // time of the last completed send
	dropped  int64     // number of dropped bytes; if positive, no more frames are queued
	finished bool      // whether no more frames will be queued
	closed   bool      // whether disconnected is closed
}

func newClient(nc net.Conn, r wire.AttachRequest) *client {
	return &client{
		conn: nc, streams: [3]bool{wire.StreamStdout: r.Stdout, wire.StreamStderr: r.Stderr}, supportsEnd: r.End,
		framesQueued: make(chan struct{}, 1), framesSent: make(chan struct{}, 1), disconnected: make(chan struct{}),
	}
}

func signalChannel(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put queues output for the client. While the container runs, it waits for space in the queue. If the client has received nothing for
// readTimeout since the container was blocked, put drops the output.
func (c *client) put(stream byte, p []byte, began time.Time, ended <-chan struct{}) {
	for bound := maxQueued; ; {
		if c.tryPut(stream, p, bound) {
			return
		}
		if bound == queuedLast {
			c.drop(len(p))
			return
		}
		timeout := time.NewTimer(c.timeLeft(began))
		select {
		case <-c.framesSent:
		case <-ended:
			bound = queuedLast
		case <-timeout.C:
			c.drop(len(p))
			return
		case <-c.disconnected:
		}
		timeout.Stop()
	}
}

// timeLeft returns how much longer the client may block the container. The parameter began is the
// time at which the container was blocked.
func (c *client) timeLeft(began time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastSent.After(began) {
		began = c.lastSent
	}
	return time.Until(began.Add(readTimeout))
}

// tryPut queues output. It returns false if the queue is full. If the client has disconnected, or
// output was already dropped, tryPut drops p and returns true.
func (c *client) tryPut(stream byte, p []byte, bound int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return true
	case c.dropped > 0:
		c.dropped += int64(len(p))
		return true
	case c.size > 0 && c.size+len(p) > bound:
		return false
	}
	c.frames = append(c.frames, wire.Frame(stream, p))
	c.size += len(p)
	signalChannel(c.framesQueued)
	if c.size < bound {
		signalChannel(c.framesSent) // for the other stream
	}
	return true
}

// drop records that n bytes were dropped. Later output is dropped and counted, too.
func (c *client) drop(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped == 0 {
		c.dropped = int64(n)
	}
}

// finishOutput marks the end of the output. The queued frames are sent, and then the connection is closed.
func (c *client) finishOutput() {
	c.mu.Lock()
	c.finished = true
	c.mu.Unlock()
	signalChannel(c.framesQueued)
}

// close closes the connection and discards the queue.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		close(c.disconnected)
		c.conn.Close()
	}
}

// send sends queued frames until the output has ended, output was dropped, or the client disconnects. Then it closes the connection.
func (c *client) send() {
	defer c.close()
	for {
		frame, finished, message := c.nextFrame()
		switch {
		case frame != nil:
			if _, err := c.conn.Write(frame); err != nil {
				return
			}
			c.recordSent(len(frame))
		case finished:
			if c.supportsEnd {
				c.conn.Write(wire.Frame(wire.StreamEnd, []byte(message)))
			}
			return
		default:
			select {
			case <-c.framesQueued:
			case <-c.disconnected:
				return
			}
		}
	}
}

// nextFrame returns the next frame of the queue. If the queue is empty, the result finished reports whether no more frames will be
// queued. If output of the client was dropped, the result message is the error message for the client.
func (c *client) nextFrame() (frame []byte, finished bool, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.frames) > 0 {
		frame, c.frames = c.frames[0], c.frames[1:]
		return frame, false, ""
	}
	c.frames = nil
	if c.dropped > 0 {
		message = fmt.Sprintf("at least %d bytes of output are missing: the reader was too slow", c.dropped)
	}
	return nil, c.finished || c.dropped > 0, message
}

func (c *client) recordSent(n int) {
	c.mu.Lock()
	c.size -= n - frameHead
	c.lastSent = time.Now()
	c.mu.Unlock()
	signalChannel(c.framesSent)
}

// frameHead is the size of a frame's header.
var frameHead = len(wire.Frame(0, nil))
