package server

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// patience is how long a client that does not read may hold up a container's
// output before it is dropped.
const patience = 5 * time.Second

// A client is attached to a container's streams.
type client struct {
	conn net.Conn
	want [3]bool // by stream
}

// broadcast hands output to the attached clients.
func (s *streams) broadcast(stream byte, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		if !c.want[stream] {
			continue
		}
		c.conn.SetWriteDeadline(time.Now().Add(patience))
		if err := wire.WriteFrame(c.conn, stream, p); err != nil {
			delete(s.clients, c)
			c.conn.Close()
		}
	}
}

// attach turns a connection into frames and returns when either side ends. The
// connection ends when the container's output has.
func (s *Server) attach(nc *conn, in *bufio.Reader, r wire.Request) {
	var req wire.AttachRequest
	err := json.Unmarshal(r.Body, &req)
	var c *container
	if err == nil {
		c, err = s.get(req.ID)
	}
	if err != nil {
		nc.reply(failed(wire.Reply{ID: r.ID}, err))
		return
	}
	cl := &client{conn: nc.Conn, want: [3]bool{wire.StreamStdout: req.Stdout, wire.StreamStderr: req.Stderr}}
	c.io.mu.Lock()
	if c.io.over {
		err = fmt.Errorf("%w: container %s has ended", errConflict, req.ID)
	}
	if nc.reply(failed(wire.Reply{ID: r.ID}, err)) == nil && err == nil {
		c.io.clients[cl] = struct{}{}
	}
	c.io.mu.Unlock()
	if err != nil {
		return
	}
	c.input(in, req.Stdin)
	c.io.mu.Lock()
	delete(c.io.clients, cl)
	c.io.mu.Unlock()
}

// input moves what a client sends until it hangs up, or has no more to say to a
// container whose stdin outlives it: that one would leave it waiting for ever.
func (c *container) input(in *bufio.Reader, stdin bool) {
	buf := make([]byte, wire.MaxFrame)
	stdin = stdin && c.io.stdin != nil
	closeStdin := func() {
		if stdin && !c.req.Terminal {
			c.io.stdin.Close()
		}
	}
	for {
		stream, p, err := wire.ReadFrame(in, buf)
		if err != nil {
			if c.req.StdinOnce {
				closeStdin()
			}
			return
		}
		switch {
		case stream == wire.StreamResize && c.io.console != nil && len(p) == 4:
			c.resize(binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:]))
		case stream == wire.StreamStdin && len(p) == 0:
			switch {
			case c.req.StdinOnce && !c.req.Terminal:
				closeStdin()
			case stdin:
				return
			}
		case stream == wire.StreamStdin && stdin:
			c.io.stdin.Write(p) // a container that closed its stdin loses it
		}
	}
}

func (c *container) resize(width, height uint16) {
	raw, err := c.io.stdin.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	})
}
