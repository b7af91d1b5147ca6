package node

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
)

// TestUpdate checks that a node of a cluster updates islet, and rolls back from a version that cannot reach the API server. No pod may
// restart.
func TestUpdate(t *testing.T) {
	t.Parallel()
	c := start(t)
	n, r := c.Node(t, ""), machine.NewReleaser(t)
	n.OwnProgram()
	n.Write("edge.yaml", fmt.Sprintf(
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\nconfiguration: {healthyFor: 3s, deadline: 45s}\nupdate: {keys: [%q]}\n", n.Disk, r.Public))
	n.Join()
	ns := c.Namespace(t)
	c.Apply(t, pod(ns, "talks", "", "", "count", "10ms"))
	before, file := pods(t, c, ns, 2), n.Disk+"/islet.tar.gz"
	before["talks"] = c.AwaitPod(t, ns, "talks", "to be ready", cluster.PodReady)
	as := func(what string) {
		t.Helper()
		if out, _ := n.Try("status"); !strings.Contains(out, "islet 9.1.0,") {
			t.Errorf("%s: version 9.1.0 does not run:\n%s", what, out)
		}
		c.AwaitNode(t, n.Name, "to be ready after "+what, cluster.NodeReady)
		unchanged(t, c, before)
	}
	r.Release(file, "9.1.0", r.BuildVersion("9.1.0"))
	interrupted := followAgain(t, c, ns, "talks")
	if out := n.Islet("update", file); !strings.Contains(out, "version 9.1.0 is installed and runs") {
		t.Error(out)
	}
	t.Logf("a log that is followed through the API server came %v late at most, over the two starts of an update", interrupted())
	as("an update")
	for _, p := range before {
		if out := c.Kubectl(t, "-n", p.Namespace, "exec", p.Name, "--", "/podtool", "cat", "/etc/hostname"); strings.TrimSpace(out) != p.Name {
			t.Errorf("kubectl exec in %s returned %q", p.Name, out)
		}
	}

	n.Run("cp", n.Binary(), n.Disk+"/lonely")
	r.Release(file, "9.2.0", append(r.BuildFailing(), "\n9.2.0 network "+n.Disk+"/lonely"...))
	if out, code := n.Try("update", file); code != 1 || !strings.Contains(out, "API server") {
		t.Errorf("a version without a link: code %d, %s", code, out)
	}
	as("a version without a link")
}

// followAgain follows a pod's log through the API server and reconnects whenever the stream ends, for example at a restart of the agent.
// The returned function ends this. It returns the longest time without a line.
func followAgain(t *testing.T, c *cluster.Cluster, ns, pod string) (stop func() time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	said, ended := make(chan struct{}, 1), make(chan time.Duration)
	go func() {
		var last time.Time
		var longest time.Duration
		for ctx.Err() == nil {
			stream, err := c.Admin().CoreV1().Pods(ns).GetLogs(pod, &corev1.PodLogOptions{Follow: true, TailLines: new(int64)}).Stream(ctx)
			if err != nil {
				cluster.Pass(20 * time.Millisecond) // no agent is running, and a user would not reconnect faster
				continue
			}
			for lines := bufio.NewScanner(stream); lines.Scan(); {
				now := time.Now()
				if !last.IsZero() {
					longest = max(longest, now.Sub(last))
				}
				last = time.Now()
				select {
				case said <- struct{}{}:
				default:
				}
			}
			stream.Close()
		}
		ended <- longest
	}()
	<-said
	return func() time.Duration {
		for range 2 { // the first value may be old
			select {
			case <-said:
			case <-time.After(machine.WaitTimeout):
				t.Error("the log has stopped")
			}
		}
		cancel()
		return <-ended
	}
}
