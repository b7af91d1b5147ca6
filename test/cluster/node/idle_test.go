package node

import (
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
)

// TestIdle: an idle node costs few bytes on the wire, whatever the number of pods, and
// hardly writes to its disk, with a link or without. When the link is back, so is the
// node, and not after the longest back-off.
func TestIdle(t *testing.T) {
	c, n, ns := join(t)
	before := pods(t, c, ns, 10)
	cluster.Pass(20 * time.Second) // what the start left behind is sent
	const span = 40 * time.Second
	in, out := n.Bytes(t)
	written := n.WrittenBytes()
	cluster.Pass(span)
	in2, out2 := n.Bytes(t)
	received, sent := float64(in2-in)/span.Seconds(), float64(out2-out)/span.Seconds()
	t.Logf("idle: %.0f B/s received, %.0f B/s sent, %d bytes written in %v", received, sent, n.WrittenBytes()-written, span)
	if received > 120 || sent > 120 { // the goal is 60 over ten minutes (make bench)
		t.Errorf("that is too much on the wire")
	}
	few(t, n.WrittenBytes()-written)

	n.Cut(t)
	cluster.Pass(10 * time.Second) // the outage is noticed
	written = n.WrittenBytes()
	cluster.Pass(span)
	t.Logf("cut off: %d bytes written in %v", n.WrittenBytes()-written, span)
	few(t, n.WrittenBytes()-written)
	n.Restore(t)
	soon(t, c, ns, "back", 4*time.Second)
	unchanged(t, c, before)
}

// few demands that in less than a minute hardly anything was written: 50 KiB an hour is the
// goal (make bench), and one page of the database's log may fall into it.
func few(t *testing.T, written int64) {
	t.Helper()
	if written > 16<<10 {
		t.Errorf("%d bytes written are too many", written)
	}
}
