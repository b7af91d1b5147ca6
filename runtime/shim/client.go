package shim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// ErrGone is returned if the shim has ended or has closed the connection.
var ErrGone = fmt.Errorf("the connection to the shim is closed: %w", errdefs.ErrUnavailable)

// A Client is a connection to a shim. Its methods are safe for concurrent use. One goroutine reads
// from the connection, and one writes to it, so a call ends with its context even if the shim does
// not read.
type Client struct {
	socket   string
	conn     net.Conn
	ended    chan struct{} // closed when the reading goroutine has ended
	requests chan []byte   // to the writing goroutine

	mu           sync.Mutex
	next         uint64
	waitingCalls map[uint64]chan wire.Reply
	closed       bool
}

// Dial connects to a shim. The first function is called for each container that ends. The second one is called once, when the connection
// has ended. Both run in the goroutine that reads from the connection, so they must return quickly and must not call methods of the client.
func Dial(ctx context.Context, socket string, event func(wire.Container), gone func()) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to shim: %w", err)
	}
	return NewClient(conn, socket, event, gone), nil
}

// NewClient is like Dial, but uses an existing connection. Attach connects to the socket.
func NewClient(conn net.Conn, socket string, event func(wire.Container), gone func()) *Client {
	c := &Client{
		socket: socket, conn: conn, ended: make(chan struct{}), requests: make(chan []byte),
		waitingCalls: map[uint64]chan wire.Reply{},
	}
	go c.write()
	go func() {
		defer close(c.ended)
		c.read(event)
		gone()
	}()
	return c
}

// write writes requests to the connection until the connection ends.
func (c *Client) write() {
	for {
		select {
		case b := <-c.requests:
			if _, err := c.conn.Write(b); err != nil {
				c.conn.Close() // the reading goroutine cleans up
				return
			}
		case <-c.ended:
			return
		}
	}
}

func (c *Client) read(event func(wire.Container)) {
	in := bufio.NewReaderSize(c.conn, 4<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var r wire.Reply
		if json.Unmarshal(line, &r) != nil {
			break
		}
		if r.Event != nil {
			event(*r.Event)
			continue
		}
		c.mu.Lock()
		ch := c.waitingCalls[r.ID]
		delete(c.waitingCalls, r.ID)
		c.mu.Unlock()
		if ch != nil {
			ch <- r
		}
	}
	c.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, ch := range c.waitingCalls {
		close(ch)
	}
	clear(c.waitingCalls)
}

// Close closes the connection and waits until no callback is running. The shim and its containers
// continue to run.
func (c *Client) Close() {
	c.conn.Close()
	<-c.ended
}

// Abandon kills a shim that does not respond, and closes the connection. Its containers are lost.
func (c *Client) Abandon() {
	if pid := c.PID(); pid > 1 {
		unix.Kill(pid, unix.SIGKILL)
	}
	c.Close()
}

// PID returns the PID of the shim's process, or 0 if it is unknown.
func (c *Client) PID() int { return peerPID(c.conn.(*net.UnixConn)) }

func (c *Client) call(ctx context.Context, method string, body, out any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ch := make(chan wire.Reply, 1)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrGone
	}
	c.next++
	id := c.next
	c.waitingCalls[id] = ch
	c.mu.Unlock()
	line, _ := json.Marshal(wire.Request{ID: id, Method: method, Body: b}) // cannot fail: b is JSON
	line = append(line, '\n')
	requests := c.requests
	for {
		select {
		case requests <- line:
			requests = nil // from now on, wait only for the reply
		case r, ok := <-ch:
			if !ok {
				return ErrGone
			}
			if err := replyError(r); err != nil || out == nil {
				return err
			}
			return json.Unmarshal(r.Body, out)
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.waitingCalls, id)
			return ctx.Err()
		}
	}
}

func replyError(r wire.Reply) error {
	if r.Error == "" {
		return nil
	}
	err := errors.New(r.Error)
	switch r.Kind {
	case wire.NotFound:
		return fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
	case wire.Conflict:
		return fmt.Errorf("%w: %w", err, errdefs.ErrFailedPrecondition)
	}
	return err
}

// Run creates and starts a container.
func (c *Client) Run(ctx context.Context, r wire.RunRequest) (out wire.Running, err error) {
	err = c.call(ctx, wire.MethodRun, r, &out)
	return out, err
}

// Kill sends a signal to a container. It is not an error if the container has ended.
func (c *Client) Kill(ctx context.Context, r wire.KillRequest) error {
	return c.call(ctx, wire.MethodKill, r, nil)
}

// Delete deletes an ended container from the OCI runtime and from the shim.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.call(ctx, wire.MethodDelete, wire.Target{ID: id}, nil)
}

// DeleteEnded is like Delete, but waits until the container has ended. Use it after SIGKILL.
func (c *Client) DeleteEnded(ctx context.Context, id string) error {
	return c.call(ctx, wire.MethodDelete, wire.Target{ID: id, Wait: true}, nil)
}

// List returns all containers of the shim, including those that have ended.
func (c *Client) List(ctx context.Context) (out []wire.Container, err error) {
	err = c.call(ctx, wire.MethodList, nil, &out)
	return out, err
}

// ReopenLog reopens a container's log file.
func (c *Client) ReopenLog(ctx context.Context, id string) error {
	return c.call(ctx, wire.MethodReopen, wire.Target{ID: id}, nil)
}

// HoldStreams makes the shim serve the streams of a container that another program runs; see wire.Held.
func (c *Client) HoldStreams(ctx context.Context, r wire.RunRequest) error {
	return c.call(ctx, wire.MethodHold, r, nil)
}

// LetGo reverts HoldStreams after the container has ended. It returns when all output is in the log.
func (c *Client) LetGo(ctx context.Context, id string) (out wire.Held, err error) {
	err = c.call(ctx, wire.MethodLetGo, wire.Target{ID: id}, &out)
	return out, err
}

// Shutdown ends the shim. It fails if the shim has containers.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.call(ctx, wire.MethodShutdown, nil, nil)
}
