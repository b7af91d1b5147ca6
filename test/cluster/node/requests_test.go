package node

import (
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
)

// TestRequestsOfARestart counts the requests of an agent that starts on a node with pods, after nothing has changed. It must continue from
// what it has stored: it requests no token and no object again, and sends no status of a pod. The API server's audit log counts.
func TestRequestsOfARestart(t *testing.T) {
	c, n, ns := join(t)
	before := pods(t, c, ns, 3)
	cluster.Pass(20 * time.Second) // the agent sends the events of the start
	began := time.Now()
	n.Kill()
	n.Start()
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)
	cluster.Pass(15 * time.Second)
	got := c.Requests(t, n.Name, began, time.Now())
	t.Logf("%d requests: %v", got.Total(), got)
	if got.Total() > 20 { // the goal of make bench for 30 pods: the number of pods makes no difference
		t.Error("too many requests")
	}
	if got["watch pods"] != 1 || got["watch configmaps"] == 0 {
		t.Error("the agent does not watch, or the audit log is incomplete")
	}
	for _, what := range []string{"patch pods/status", "create serviceaccounts/token", "list pods", "list configmaps", "list services"} {
		if got[what] != 0 {
			t.Errorf("%d requests %s", got[what], what)
		}
	}
	unchanged(t, c, before)
}
