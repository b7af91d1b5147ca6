package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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
	var in, out, in2, out2, wrote int64
	var began time.Time
	for range 6 { // until no other test has changed an object that every node stores
		objects := sharedObjects(t, c)
		in, out = n.Bytes(t)
		written := n.WrittenBytes()
		began = time.Now()
		cluster.Pass(span)
		in2, out2 = n.Bytes(t)
		wrote = n.WrittenBytes() - written
		if sharedObjects(t, c) == objects {
			break
		}
	}
	received, sent := float64(in2-in)/span.Seconds(), float64(out2-out)/span.Seconds()
	t.Logf("idle: %.0f B/s received, %.0f B/s sent, %d bytes written in %v", received, sent, wrote, span)
	if received > 120 || sent > 120 { // the goal of make bench is 60 over ten minutes
		t.Errorf("too many bytes on the wire")
	}
	few(t, n, wrote, began)

	n.Cut(t)
	cluster.Pass(10 * time.Second) // the agent detects the outage
	written := n.WrittenBytes()
	began = time.Now()
	cluster.Pass(span)
	t.Logf("cut off: %d bytes written in %v", n.WrittenBytes()-written, span)
	few(t, n, n.WrittenBytes()-written, began)
	n.Restore(t)
	soon(t, c, ns, "back", 4*time.Second)
	unchanged(t, c, before)
}

// sharedObjects describes the versions of all objects that every node stores.
func sharedObjects(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	services, err := c.Admin().CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	classes, err := c.Admin().NodeV1().RuntimeClasses().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	drivers, err := c.Admin().StorageV1().CSIDrivers().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	versions := []string{}
	for _, list := range []runtime.Object{services, classes, drivers} {
		err := meta.EachListItem(list, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			versions = append(versions, string(m.GetUID())+m.GetResourceVersion())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(versions)
	return strings.Join(versions, " ")
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
