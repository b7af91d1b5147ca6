package server

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/islet-edge/islet/runtime/console"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// maxClients is the maximum number of clients that are attached to one container.
const maxClients = 64

// sendToClients sends output to the attached clients. A slow client blocks the output and therefore the
// container.
func (s *containerStreams) sendToClients(stream byte, p []byte) {
	s.mu.Lock()
	var to []*client // usually empty
	for c := range s.clients {
		if c.streams[stream] {
			to = append(to, c)
		}
	}
	s.mu.Unlock()
	began := time.Now()
	for _, c := range to {
		c.put(stream, p, began, s.ended)
	}
}

// attachClient connects a client to the streams of a container. It returns when the client has closed the
// connection, or when the container's output has ended and was sent to the client. It closes the
// connection.
func (s *Server) attachClient(nc *conn, in *bufio.Reader, r wire.Request) {
	var req wire.AttachRequest
	err := json.Unmarshal(r.Body, &req)
	var c *container
	if err == nil {
		c, err = s.findContainer(req.ID)
	}
	if err != nil {
		nc.reply(withError(wire.Reply{ID: r.ID}, err))
		return
	}
	cl := newClient(nc.Conn, req)
	c.io.mu.Lock()
	switch {
	case c.io.outputEnded:
		err = fmt.Errorf("%w: container %s has ended", errConflict, req.ID)
	case len(c.io.clients) >= maxClients:
		err = fmt.Errorf("%w: container %s has %d attached clients, which is the maximum: disconnect one of them first",
			errConflict, req.ID, maxClients)
	}
	reply := wire.Reply{ID: r.ID}
	if req.End {
		reply.Body, _ = json.Marshal(wire.Attached{End: true})
	}
	if nc.reply(withError(reply, err)) == nil && err == nil {
		c.io.clients[cl] = struct{}{}
	}
	c.io.mu.Unlock()
	if err != nil {
		return
	}
	s.countReader(1)
	defer s.countReader(-1)
	sent := make(chan struct{})
	go func() { cl.send(); close(sent) }()
	gone := c.forwardInput(nc.Conn, in, req.Stdin)
	c.io.mu.Lock()
	delete(c.io.clients, cl)
	c.io.mu.Unlock()
	cl.finishOutput()
	if gone {
		cl.close()
	}
	<-sent
}

// countReader adds n to the number of attached clients. The shim does not end while it has attached
// clients, because a client receives the rest of the output even after its container was deleted.
func (s *Server) countReader(n int) {
	s.mu.Lock()
	s.attachedClients += n
	s.mu.Unlock()
	s.noteChange()
}

// forwardInput forwards a client's stdin and terminal sizes. It returns true when the client has closed
// the connection. It returns false when the client has ended its stdin but the container's stdin stays
// open. Such a container does not see the end of its input, so a client that waits for the end of the
// output might wait forever.
func (c *container) forwardInput(conn net.Conn, in *bufio.Reader, stdin bool) (gone bool) {
	buf := make([]byte, wire.MaxFrame)
	stdin = stdin && c.io.stdin.file != nil
	closeStdin := func() {
		if stdin && !c.req.Terminal {
			c.io.stdin.file.Close()
		}
	}
	leave := func() {
		if c.req.StdinOnce {
			closeStdin()
		}
	}
	for {
		stream, p, err := wire.ReadFrame(in, buf)
		if err != nil {
			leave()
			return true
		}
		switch {
		case stream == wire.StreamResize && c.io.console != nil && len(p) == 4:
			console.Resize(c.io.stdin.file, binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:]))
		case stream == wire.StreamStdin && len(p) == 0:
			switch {
			case c.req.StdinOnce && !c.req.Terminal:
				closeStdin()
			case stdin:
				return false
			}
		case stream == wire.StreamStdin && stdin:
			if !c.io.stdin.write(conn, p) {
				leave()
				return true
			}
		}
	}
}
