package remotedialer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// chunk is the maximum number of bytes that a connection reads at a time, and the size of a message with data.
const chunk = 32 << 10

// errEnded means that the server has ended a connection.
var errEnded = errors.New("ended by the server")

// A connection is one connection of the server to the node.
//
//	server --Data--> receive --> waiting --deliver--> node
//	server <--Data-------------- collect <----------- node
type connection struct {
	session *Session
	number  int64

	flow sync.Mutex // held while Pause or Resume is decided and sent, so that the server gets them in order

	mu      sync.Mutex
	moved   sync.Cond    // signals each change of the fields below
	waiting bytes.Buffer // data for the node
	ended   bool         // the server sends no more
	failed  bool         // the node takes no more data
	paused  bool         // the server was asked to pause
	held    bool         // the server has asked to pause
	node    net.Conn     // nil until it is connected
}

func newConnection(s *Session, number int64) *connection {
	c := &connection{session: s, number: number}
	c.moved.L = &c.mu
	return c
}

// set changes fields and wakes deliver and collect.
func (c *connection) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.moved.Broadcast()
}

// hold pauses or resumes the data for the server.
func (c *connection) hold(held bool) { c.set(func() { c.held = held }) }

// end ends the connection after the node has received the waiting data.
func (c *connection) end() {
	c.set(func() {
		c.ended, c.held = true, false
		if c.node != nil {
			_ = c.node.SetWriteDeadline(time.Now().Add(writeLimit))
		}
	})
}

// fail ends the connection at once.
func (c *connection) fail() {
	c.set(func() {
		c.failed = true
		if c.node != nil {
			c.node.Close()
		}
	})
}

// receive takes the data of a message. If too much data waits, it ends the connection. An error ends the session.
func (c *connection) receive(r io.Reader) error {
	var b [4096]byte
	for {
		n, err := r.Read(b[:])
		if n > 0 && !c.add(b[:n]) {
			c.fail()
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	return c.steer()
}

// steer sends Pause if too much data waits, and Resume if little is left.
func (c *connection) steer() error {
	c.flow.Lock()
	defer c.flow.Unlock()
	c.mu.Lock()
	was, size := c.paused, c.waiting.Len()
	c.paused = !c.ended && !c.failed && (size > pauseAt || was && size >= resumeAt)
	now := c.paused
	c.mu.Unlock()
	switch {
	case now && !was:
		return c.session.send(header{conn: c.number, kind: kindPause}, nil)
	case was && !now:
		return c.session.send(header{conn: c.number, kind: kindResume}, nil)
	}
	return nil
}

// add adds data for the node, and reports whether there is room for it. Data after the end is dropped.
func (c *connection) add(b []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.failed {
		return true
	}
	if c.waiting.Len()+len(b) > maxConnectionWaiting || !take(&c.session.budget.waiting, int64(len(b)), maxWaiting) {
		return false
	}
	c.waiting.Write(b)
	c.moved.Broadcast()
	return true
}

// run connects to the node and copies in both directions until one side has ended the connection.
func (c *connection) run(ctx context.Context, network, address string) {
	defer c.release()
	dialing, cancel := context.WithTimeout(ctx, dialLimit)
	node, err := c.session.dial(dialing, network, address)
	cancel()
	if err != nil {
		_ = c.session.sendEnd(c.number, err)
		return
	}
	c.set(func() { c.node = node })
	stop := context.AfterFunc(ctx, c.fail)
	defer stop()
	var delivered sync.WaitGroup
	delivered.Go(func() {
		c.deliver(node)
		node.Close() // ends collect
	})
	err = c.collect(node)
	c.fail() // ends deliver
	delivered.Wait()
	switch {
	case errors.Is(err, errEnded):
	case errors.Is(err, io.EOF):
		_ = c.session.sendEnd(c.number, nil)
	default:
		_ = c.session.sendEnd(c.number, err)
	}
}

// release gives the waiting bytes back to the budget.
func (c *connection) release() {
	c.set(func() {
		c.failed = true
		c.session.budget.waiting.Add(-int64(c.waiting.Len()))
		c.waiting = bytes.Buffer{}
	})
}

// deliver writes the waiting data to the node until the connection has ended.
func (c *connection) deliver(node net.Conn) {
	b := make([]byte, chunk)
	for {
		c.mu.Lock()
		for c.waiting.Len() == 0 && !c.ended && !c.failed {
			c.moved.Wait()
		}
		if c.failed || c.waiting.Len() == 0 {
			c.mu.Unlock()
			return
		}
		n, _ := c.waiting.Read(b) // an error means that there is no data
		if c.waiting.Len() == 0 && c.waiting.Cap() > pauseAt {
			c.waiting = bytes.Buffer{} // frees the memory of a burst
		}
		c.mu.Unlock()
		_, err := node.Write(b[:n])
		c.session.budget.waiting.Add(-int64(n))
		if err == nil {
			err = c.steer()
		}
		if err != nil {
			return
		}
	}
}

// collect sends the data of the node to the server until the connection has ended. The error is io.EOF if the node has ended it, and
// errEnded if the server has.
func (c *connection) collect(node net.Conn) error {
	b := make([]byte, chunk)
	for {
		n, err := node.Read(b)
		c.mu.Lock()
		for c.held && !c.failed {
			c.moved.Wait()
		}
		ended, failed := c.ended, c.failed
		c.mu.Unlock()
		switch {
		case ended && err == nil:
			continue // deliver closes the connection as soon as the node has all data
		case ended:
			return errEnded
		case failed:
			return errors.New("the node takes no more data")
		}
		if n > 0 {
			if err := c.session.send(header{conn: c.number, kind: kindData}, b[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}
