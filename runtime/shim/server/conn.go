package server

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"sync"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// A conn is a connection from an agent. Requests are handled concurrently, and mu serializes the
// replies.
type conn struct {
	net.Conn
	number uint64 // in the order in which connections are accepted
	mu     sync.Mutex
	enc    *json.Encoder
}

func (c *conn) reply(r wire.Reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.enc.Encode(r)
}

// addConn registers an accepted connection. It must be called in the order in which connections are accepted.
func (s *Server) addConn(nc net.Conn) *conn {
	c := &conn{Conn: nc, enc: json.NewEncoder(nc)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted++
	c.number = s.accepted
	s.conns[c] = struct{}{}
	s.noteChange()
	return c
}

// serveConn reads requests until the connection ends or becomes an attachment.
func (s *Server) serveConn(c *conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.noteChange()
	}()
	in := bufio.NewReaderSize(c, 4<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r wire.Request
		if err := json.Unmarshal(line, &r); err != nil {
			s.log.Warn("an agent's connection sent an invalid request", "error", err)
			return
		}
		if r.Method == wire.MethodAttach {
			s.mu.Lock()
			delete(s.conns, c) // stop sending events to this connection
			s.mu.Unlock()
			s.attachClient(c, in, r)
			return
		}
		go func() { c.reply(s.handleRequest(c, r)) }()
	}
}

func (s *Server) handleRequest(c *conn, r wire.Request) wire.Reply {
	out := wire.Reply{ID: r.ID}
	res, err := s.handleCall(c, r.Method, r.Body)
	if err == nil && res != nil {
		out.Body, err = json.Marshal(res)
	}
	return withError(out, err)
}

// withError adds an error to a reply. It returns the reply unchanged if err is nil.
func withError(out wire.Reply, err error) wire.Reply {
	if err != nil {
		out.Error = err.Error()
		switch {
		case errors.Is(err, errNotFound):
			out.Kind = wire.NotFound
		case errors.Is(err, errConflict):
			out.Kind = wire.Conflict
		}
	}
	return out
}

// sendEvent sends an event to every connected agent.
func (s *Server) sendEvent(e wire.Container) {
	s.mu.Lock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.reply(wire.Reply{Event: &e}) // the goroutine that reads from the connection notices an error
	}
}
