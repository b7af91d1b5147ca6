package k3s

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
)

// TestIsletOutage checks that megabytes pass a tunnel in both directions at the same time, and that the tunnel works again after the link
// was silent, after it was down, and after the agent was killed.
func TestIsletOutage(t *testing.T) {
	t.Parallel()
	c, s := Start(t)
	n := newNode(t, c)
	n.start(s, s.BootstrapToken(bootstrapToken))
	ns := c.Namespace(t)
	c.Apply(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": %q}, "spec": {"nodeName": %q,
"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": %q, "args": ["count"]}]}}`, ns, n.Name, machine.Image))
	c.AwaitReady(t, ns, "p")
	in := strings.Repeat("0123456789abcdef", 256<<10)
	out, err := c.TryKubectl(in, "-n", ns, "exec", "-i", "p", "--", "/podtool", "cat")
	if err != nil || out != in {
		t.Errorf("kubectl exec -i has returned %d of %d bytes, %v", len(out), len(in), err)
	}
	works := func() bool {
		out, err := c.TryKubectl("", "-n", ns, "exec", "p", "--request-timeout=10s", "--", "/podtool", "cat", "/etc/hostname")
		return err == nil && out == "p\n"
	}
	n.Silence(t)
	cluster.Pass(5 * time.Second)
	n.Restore(t)
	n.Await("kubectl exec after silence", works)
	n.Cut(t)
	cluster.Pass(5 * time.Second)
	n.Restore(t)
	n.Await("kubectl exec after a cut", works)
	n.Kill()
	n.StartAgent()
	n.Await("kubectl exec after a kill", works)
}
