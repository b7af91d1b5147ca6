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
	running := pods(t, c, ns, 10)
	for range 5 { // until the agent has sent and stored the events of the start
		started := n.WrittenBytes()
		cluster.Pass(20 * time.Second)
		if n.WrittenBytes() == started {
			break
		}
	}
	const span = 40 * time.Second
	const most = 120 // bytes per second; the goal of make bench is 60 over ten minutes
	var received, sent float64
	var written int64
	for range 3 { // other tests use the same control plane and the same kernel, so a span may have an event of theirs
		in, out := n.Bytes(t)
		before, began := n.WrittenBytes(), time.Now()
		cluster.Pass(span)
		in2, out2 := n.Bytes(t)
		received, sent = float64(in2-in)/span.Seconds(), float64(out2-out)/span.Seconds()
		written = n.WrittenBytes() - before
		if written <= fewBytes && received <= most && sent <= most {
			break
		}
		t.Logf("%d bytes were written since %s. These files were changed:\n%s", written, began.UTC().Format("15:04:05.000"),
			strings.Join(n.ChangedFiles(began), "\n"))
	}
	t.Logf("idle: %.0f B/s received, %.0f B/s sent, %d bytes written in %v", received, sent, written, span)
	if received > most || sent > most {
		t.Errorf("too many bytes on the wire")
	}
	few(t, written)

	n.Cut(t)
	cluster.Pass(10 * time.Second) // the agent detects the outage
	for range 3 {                  // beside other tests, that takes longer
		before, began := n.WrittenBytes(), time.Now()
		cluster.Pass(span)
		if written = n.WrittenBytes() - before; written <= fewBytes {
			break
		}
		t.Logf("cut off: these files were changed:\n%s", strings.Join(n.ChangedFiles(began), "\n"))
	}
	t.Logf("cut off: %d bytes written in %v", written, span)
	few(t, written)
	n.Restore(t)
	soon(t, c, ns, "back", 4*time.Second)
	unchanged(t, c, running)
}

// fewBytes is the maximum number of bytes that an idle node may write in less than a minute. The goal of make bench is 50 KiB per hour. One
// page of the database's log may be written in this minute.
const fewBytes = 16 << 10

func few(t *testing.T, written int64) {
	t.Helper()
	if written > fewBytes {
		t.Errorf("%d bytes were written, which is too much", written)
	}
}
