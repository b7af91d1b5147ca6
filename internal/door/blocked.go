package door

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/islet-edge/islet/internal/pulse"
)

// errLost is the error of a write to a peer that has vanished.
var errLost = errors.New("the peer takes nothing and answers nothing: its link is cut, or its machine is off")

// A blocked looks after the writes to a connection: whoever writes there may be held up by the
// peer, and a container by the writer. A slow peer may take as long as it likes; a connection whose
// peer has vanished is closed. It costs nothing while no write waits.
type blocked struct {
	mu     sync.Mutex
	timer  *time.Timer // nil before the first write
	writes int
	lost   bool
}

// Write writes b. The error of a peer that has vanished comes soon after Config.Silence.
func (c *conn) Write(b []byte) (int, error) {
	c.begin()
	n, err := c.Conn.Write(b)
	if c.end() && err != nil {
		err = errLost
	}
	return n, err
}

// looks is how often a blocked write is looked at within the silence.
const looks = 3

func (c *conn) begin() {
	w := &c.blocked
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	switch {
	case w.timer == nil:
		w.timer = time.AfterFunc(c.l.c.Silence/looks, c.look)
	case w.writes == 1:
		w.timer.Reset(c.l.c.Silence / looks)
	}
}

func (c *conn) end() (lost bool) {
	w := &c.blocked
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writes--; w.writes == 0 {
		w.timer.Stop()
	}
	return w.lost
}

// look closes the connection if a write waits for a peer that has vanished.
func (c *conn) look() {
	w := &c.blocked
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.writes == 0:
	case pulse.Lost(c.Conn, c.l.c.Silence):
		w.lost = true
		c.l.c.Log.Info("closed a connection whose peer takes nothing and answers nothing", "port", c.l.c.What, "from", c.from.Addr())
		if t, ok := c.Conn.(*net.TCPConn); ok {
			t.SetLinger(0) // a peer that comes back must not take this for the end of the data
		}
		c.Conn.Close()
	default:
		w.timer.Reset(c.l.c.Silence / looks)
	}
}
