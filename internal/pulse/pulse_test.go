package pulse_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/pulse"
	"github.com/islet-edge/islet/internal/pulse/pulsetest"
)

// newPair returns the two ends of a connection.
func newPair(t *testing.T) (ours net.Conn, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if theirs, err = pulsetest.Dial(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	if ours, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	return ours, theirs
}

func cut(t *testing.T, c *net.TCPConn) {
	t.Helper()
	if err := pulsetest.CutLink(c); err != nil {
		t.Fatal(err)
	}
}

const silence = time.Second

// isLostWithin waits until the peer is lost. It returns false if the peer is not lost within the
// limit.
func isLostWithin(c net.Conn, limit time.Duration) bool {
	late := time.After(limit)
	tick := time.NewTicker(silence / 10)
	defer tick.Stop()
	for {
		select {
		case <-late:
			return false
		case <-tick.C:
			if pulse.IsLost(c, silence) {
				return true
			}
		}
	}
}

// TestLost checks when a peer that reads no data counts as lost. While the peer's machine acknowledges packets, the peer counts as slow.
// Otherwise it counts as lost, in any state of the connection. A connection without unacknowledged data is not lost.
func TestLost(t *testing.T) {
	const alive, found = 8 * silence, time.Minute
	full := func(c net.Conn) { // the remaining data is discarded at the deadline
		c.SetWriteDeadline(time.Now().Add(silence))
		c.Write(make([]byte, 16<<20))
	}
	for name, test := range map[string]func(t *testing.T, ours net.Conn, theirs *net.TCPConn){
		"stops, and lives": func(t *testing.T, ours net.Conn, _ *net.TCPConn) {
			full(ours)
			if isLostWithin(ours, alive) {
				t.Error("taken for lost")
			}
		},
		"vanishes while it reads": func(t *testing.T, ours net.Conn, theirs *net.TCPConn) {
			cut(t, theirs)
			ours.Write([]byte("hello"))
			if !isLostWithin(ours, found) {
				t.Error("not found")
			}
		},
		"vanishes after it has stopped": func(t *testing.T, ours net.Conn, theirs *net.TCPConn) {
			full(ours)
			cut(t, theirs)
			if !isLostWithin(ours, found) {
				t.Error("not found")
			}
		},
		"vanishes, and nobody writes": func(t *testing.T, ours net.Conn, theirs *net.TCPConn) {
			cut(t, theirs)
			if isLostWithin(ours, 2*silence) {
				t.Error("looked for")
			}
		},
		"has hung up": func(t *testing.T, ours net.Conn, theirs *net.TCPConn) {
			theirs.Close()
			ours.Write([]byte("hello"))
			ours.Close()
			if pulse.IsLost(ours, 0) {
				t.Error("taken for lost")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := newPair(t)
			test(t, ours, theirs)
		})
	}
	a, b := net.Pipe()
	defer b.Close()
	if pulse.IsLost(a, 0) || pulse.IsLost(nil, 0) {
		t.Error("a connection that is not TCP is lost")
	}
}

// A wrapped is a connection with a NetConn method, such as that of TLS.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

// TestHasHungUp checks that the end of a peer is found behind unread data.
func TestHasHungUp(t *testing.T) {
	ours, theirs := newPair(t)
	if _, err := theirs.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	var reads atomic.Uint64
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if pulse.HasHungUp(wrapped{ours}) {
		t.Error("the peer is connected")
	}
	if pulse.AwaitHangUp(canceled, ours, &reads) {
		t.Error("the context has ended")
	}
	theirs.Close()
	if !pulse.AwaitHangUp(t.Context(), wrapped{ours}, &reads) || !pulse.HasHungUp(ours) {
		t.Error("the peer has disconnected")
	}
	ours.Close()
	if !pulse.HasHungUp(ours) {
		t.Error("this end is closed")
	}
	pipe, _ := net.Pipe()
	if pulse.HasHungUp(pipe) {
		t.Error("a connection without a socket")
	}
}
