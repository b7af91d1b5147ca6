package connlimit

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/islet-edge/islet/internal/pulse"
)

// errLost is the error for a write to a lost peer.
var errLost = errors.New("the peer acknowledges no packets: its link is cut, or its machine is off")

// blockedWrites detects a lost peer while a write to its connection is blocked. A write blocks if the peer does not
// read. The container that produces the data may then block too. The connection of a lost peer is closed. A slow peer
// has no time limit. The timer runs only while a write is in progress.
type blockedWrites struct {
	mu     sync.Mutex
	timer  *time.Timer // nil before the first write
	writes int
	lost   bool
}

// Write writes b. It returns an error if the peer counts as lost after Config.Silence.
func (c *conn) Write(b []byte) (int, error) {
	c.beginWrite()
	n, err := c.Conn.Write(b)
	if c.endWrite() && err != nil {
		err = errLost
	}
	return n, err
}

// checksPerSilence is the number of checks of a blocked write within Config.Silence.
const checksPerSilence = 3

func (c *conn) beginWrite() {
	w := &c.blocked
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	switch {
	case w.timer == nil:
		w.timer = time.AfterFunc(c.l.c.Silence/checksPerSilence, c.checkWrites)
	case w.writes == 1:
		w.timer.Reset(c.l.c.Silence / checksPerSilence)
	}
}

func (c *conn) endWrite() (lost bool) {
	w := &c.blocked
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes--
	if w.writes == 0 {
		w.timer.Stop()
	}
	return w.lost
}

// checkWrites closes the connection if a write is blocked and the peer is lost.
func (c *conn) checkWrites() {
	w := &c.blocked
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.writes == 0:
	case pulse.IsLost(c.Conn, c.l.c.Silence):
		w.lost = true
		c.l.c.Log.Info("closed the connection of a lost peer", "port", c.l.c.PortName, "from", c.from.Addr())
		if t, ok := c.Conn.(*net.TCPConn); ok {
			t.SetLinger(0) // send RST: if the peer becomes reachable again, it would read a FIN as the end of the data
		}
		c.Conn.Close()
	default:
		w.timer.Reset(c.l.c.Silence / checksPerSilence)
	}
}
