package remotedialer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"
)

const (
	// pingInterval is the interval of pings. A server closes a session after 60 s without one.
	pingInterval = 25 * time.Second
	// silenceLimit is the time without any message after which a session ends.
	silenceLimit = 90 * time.Second
	// checkLimit is the time in which a server must answer after Check.
	checkLimit = 10 * time.Second
	// writeLimit is the time in which the server must take a message.
	writeLimit = time.Minute
	// dialLimit is the time for a connection on the node.
	dialLimit = 10 * time.Second
	// syncInterval is the minimum interval of the list of connections. The server closes connections that are not in the list.
	syncInterval = time.Minute
)

// A Dial connects to an address on the node that the server has requested, or returns an error if the server may not reach it.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// A Session is one tunnel.
type Session struct {
	ws     *websocket.Conn
	dial   Dial
	budget *Budget
	check  chan struct{} // capacity 1; see Check

	writing sync.Mutex
	number  int64 // of the last message; protected by writing
	buffer  []byte

	mu      sync.Mutex
	conns   map[int64]*connection
	changed bool // conns has changed since the last list
}

// New returns a session over a WebSocket. Run must be called.
func New(ws *websocket.Conn, dial Dial, budget *Budget) *Session {
	return &Session{ws: ws, dial: dial, budget: budget, check: make(chan struct{}, 1), conns: map[int64]*connection{}}
}

// Check ends the session unless the server answers soon. It is for use after a change of the network.
func (s *Session) Check() {
	select {
	case s.check <- struct{}{}:
	default:
	}
}

// Run serves the session until it or the context ends. It closes the WebSocket and waits until all connections are closed.
func (s *Session) Run(parent context.Context) error {
	g, ctx := errgroup.WithContext(parent)
	s.ws.SetReadLimit(maxMessage)
	s.extend(silenceLimit)
	s.ws.SetPongHandler(func(string) error { return s.extend(silenceLimit) })
	s.ws.SetPingHandler(func(text string) error {
		_ = s.extend(silenceLimit)
		err := s.ws.WriteControl(websocket.PongMessage, []byte(text), time.Now().Add(checkLimit))
		if errors.Is(err, websocket.ErrCloseSent) {
			return nil
		}
		return err
	})
	g.Go(func() error { return s.ping(ctx) })
	g.Go(func() error {
		<-ctx.Done()
		return errors.Join(ctx.Err(), s.ws.Close()) // ends a read and a write
	})
	g.Go(func() error {
		err := s.serve(ctx, g)
		if err == nil {
			err = io.EOF
		}
		return err
	})
	err := g.Wait()
	if parent.Err() != nil {
		return nil
	}
	return err
}

// extend sets the time in which the next message must arrive.
func (s *Session) extend(limit time.Duration) error {
	return s.ws.SetReadDeadline(time.Now().Add(limit))
}

// ping sends pings and lists of connections until ctx ends.
func (s *Session) ping(ctx context.Context) error {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	listed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.check:
			if err := s.extend(checkLimit); err != nil {
				return err
			}
		case <-tick.C:
		}
		err := s.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeLimit))
		if err != nil && !isTimeout(err) { // a timeout is left to the limit of the silence
			return fmt.Errorf("send a ping: %w", err)
		}
		if time.Since(listed) >= syncInterval {
			listed = time.Now()
			if err := s.sendList(); err != nil {
				return err
			}
		}
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// sendList sends the numbers of the open connections if they have changed.
func (s *Session) sendList() error {
	s.mu.Lock()
	changed, numbers := s.changed, slices.Sorted(maps.Keys(s.conns))
	s.changed = false
	s.mu.Unlock()
	if !changed {
		return nil
	}
	var list []byte
	for _, n := range numbers {
		list = binary.LittleEndian.AppendUint64(list, uint64(n))
	}
	return s.send(header{kind: kindSyncConnections}, list)
}

// send sends a message. If the server does not take it in time, the session ends.
func (s *Session) send(h header, content []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.number++
	s.buffer = append(appendHeader(s.buffer[:0], s.number, h), content...)
	err := s.ws.SetWriteDeadline(time.Now().Add(writeLimit))
	if err == nil {
		err = s.ws.WriteMessage(websocket.BinaryMessage, s.buffer)
	}
	if err != nil {
		s.ws.Close()
	}
	return err
}

// sendEnd tells the server that a connection has ended.
func (s *Session) sendEnd(conn int64, why error) error {
	text := endOfStream
	if why != nil {
		text = why.Error()
	}
	return s.send(header{conn: conn, kind: kindError}, []byte(text[:min(len(text), maxText)]))
}

// serve reads messages until the session ends.
func (s *Session) serve(ctx context.Context, g *errgroup.Group) error {
	r := bufio.NewReaderSize(nil, 4096)
	for {
		kind, message, err := s.ws.NextReader()
		if err != nil {
			return err
		}
		if kind != websocket.BinaryMessage {
			return errors.New("the server has sent a message that is not binary")
		}
		if err := s.extend(silenceLimit); err != nil {
			return err
		}
		r.Reset(message)
		h, err := readHeader(r)
		if err == nil {
			err = s.handle(ctx, g, h, r)
		}
		if err != nil {
			return err
		}
	}
}

// handle handles one message. An error ends the session.
func (s *Session) handle(ctx context.Context, g *errgroup.Group, h header, r *bufio.Reader) error {
	switch h.kind {
	case kindConnect:
		network, address, err := readTarget(r)
		if err != nil {
			return err
		}
		return s.connect(ctx, g, h.conn, network, address)
	case kindData:
		c := s.find(h.conn)
		if c == nil {
			return s.sendEnd(h.conn, errors.New("connection not found"))
		}
		return c.receive(r)
	case kindPause, kindResume:
		if c := s.find(h.conn); c != nil {
			c.hold(h.kind == kindPause)
		}
	case kindError:
		if c := s.find(h.conn); c != nil {
			c.end()
		}
	}
	return nil
}

func (s *Session) find(conn int64) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[conn]
}

// connect opens a connection for the server. If there is no place for it, only the connection fails.
func (s *Session) connect(ctx context.Context, g *errgroup.Group, number int64, network, address string) error {
	s.mu.Lock()
	_, used := s.conns[number]
	full := !used && (len(s.conns) >= maxSessionConnections || !take(&s.budget.connections, 1, maxConnections))
	var c *connection
	if !used && !full {
		c = newConnection(s, number)
		s.conns[number], s.changed = c, true
	}
	s.mu.Unlock()
	switch {
	case used:
		return fmt.Errorf("the server has used the number %d of a connection twice", number)
	case full:
		return s.sendEnd(number, errors.New("the node has too many connections"))
	}
	g.Go(func() error {
		c.run(ctx, network, address)
		s.mu.Lock()
		delete(s.conns, number)
		s.changed = true
		s.mu.Unlock()
		s.budget.connections.Add(-1)
		return nil
	})
	return nil
}
