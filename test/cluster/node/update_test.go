package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
)

// TestUpdate: a node of a cluster takes another version of islet, and goes back from one that
// does not reach the API server, which the one before did. Its pods run on meanwhile.
func TestUpdate(t *testing.T) {
	t.Parallel()
	c := start(t)
	n, r := c.Node(t, ""), machine.NewReleaser(t)
	n.OwnProgram()
	n.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\nconfiguration: {healthyFor: 3s, deadline: 45s}\nupdate: {keys: [%q]}\n", n.Disk, r.Public))
	n.Join()
	before, file := pods(t, c, c.Namespace(t), 2), n.Disk+"/islet.tar.gz"
	as := func(what string) {
		t.Helper()
		if out, _ := n.Try("status"); !strings.Contains(out, "islet 9.1.0,") {
			t.Errorf("%s: version 9.1.0 does not run:\n%s", what, out)
		}
		c.AwaitNode(t, n.Name, "to be ready after "+what, cluster.NodeReady)
		unchanged(t, c, before)
	}
	r.Release(file, "9.1.0", r.Version("9.1.0"))
	if out := n.Islet("update", file); !strings.Contains(out, "version 9.1.0 is installed and runs") {
		t.Error(out)
	}
	as("an update")
	for _, p := range before {
		if out := c.Kubectl(t, "-n", p.Namespace, "exec", p.Name, "--", "/podtool", "cat", "/etc/hostname"); strings.TrimSpace(out) != p.Name {
			t.Errorf("kubectl exec of %s says %q", p.Name, out)
		}
	}

	n.Run("cp", n.Binary(), n.Disk+"/lonely")
	r.Release(file, "9.2.0", append(r.Bad(), "\n9.2.0 network "+n.Disk+"/lonely"...))
	if out, code := n.Try("update", file); code != 1 || !strings.Contains(out, "API server") {
		t.Errorf("a version without a link: code %d, %s", code, out)
	}
	as("a version without a link")
}
