package node

import (
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
)

// TestIdle checks that an idle node sends and receives few bytes and hardly writes to its disk, with or without a link. When the link is
// restored, the node must reconnect in less time than the longest back-off.
func TestIdle(t *testing.T) {
	c, n, ns := join(t)
	before := pods(t, c, ns, 10)
	for range 5 { // until the agent has sent and stored the events of the start
		started := n.WrittenBytes()
		cluster.Pass(20 * time.Second)
		if n.WrittenBytes() == started {
			break
		}
	}
	const span = 40 * time.Second
	in, out := n.Bytes(t)
	written, began := n.WrittenBytes(), time.Now()
	cluster.Pass(span)
	in2, out2 := n.Bytes(t)
	received, sent := float64(in2-in)/span.Seconds(), float64(out2-out)/span.Seconds()
	t.Logf("idle: %.0f B/s received, %.0f B/s sent, %d bytes written in %v", received, sent, n.WrittenBytes()-written, span)
	if received > 120 || sent > 120 { // the goal of make bench is 60 over ten minutes
		t.Errorf("too many bytes on the wire")
	}
	few(t, n, n.WrittenBytes()-written, began)

	n.Cut(t)
	cluster.Pass(10 * time.Second) // the agent detects the outage
	written, began = n.WrittenBytes(), time.Now()
	cluster.Pass(span)
	t.Logf("cut off: %d bytes written in %v", n.WrittenBytes()-written, span)
	few(t, n, n.WrittenBytes()-written, began)
	n.Restore(t)
	soon(t, c, ns, "back", 4*time.Second)
	unchanged(t, c, before)
}

// This function checks the number of bytes that were written in less than a minute. The goal of make bench is 50 KiB per hour. One page of
// the database's log may be written in this minute.
func few(t *testing.T, n *cluster.Node, written int64, since time.Time) {
	t.Helper()
	if written > 16<<10 {
		t.Errorf("%d bytes were written since %s, which is too much. These files were changed:\n%s",
			written, since.UTC().Format("15:04:05.000"), strings.Join(n.ChangedFiles(since), "\n"))
	}
}
