package node

import (
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// TestStatus checks that islet status shows the state of the connection to the API server.
func TestStatus(t *testing.T) {
	c, n, ns := join(t)
	pods(t, c, ns, 2)
	node := c.AwaitNode(t, n.Name, "to have a podCIDR", func(n *corev1.Node) bool { return n.Spec.PodCIDR != "" && cluster.NodeReady(n) })
	shows := func(code int, what ...string) {
		t.Helper()
		var out string
		defer func() { t.Log(out) }()
		n.Await("islet status to show "+strings.Join(what, ", "), func() bool {
			var got int
			out, got = n.Try("status")
			for _, w := range what {
				if !strings.Contains(out, w) {
					return false
				}
			}
			return got == code || code == 0 && machine.IsWell(out, got)
		})
	}
	healthy := []string{"up for", "client until 2", "2 pods from 10.", "built in, " + node.Spec.PodCIDR}
	shows(0, append(healthy, "Ready: ")...)
	n.Cut(t)
	c.Kubectl(t, "-n", ns, "delete", "pod", "p0", "--wait=false")
	if _, code := n.Try("exec", "-n", ns, "p1", "--", "/podtool", "exit", "0"); code != 0 {
		t.Errorf("a command without a link exited with %d", code)
	}
	shows(1, "DOWN for", "Unreachable", "pods keep running", "2 pods from 10.")
	n.Restore(t)
	shows(0, "up for", "1 pod from 10.")
}
