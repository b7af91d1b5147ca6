package node

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// Tests that change the control plane do not run in parallel with other tests, because all tests share it.

// ranOn checks that the pods' containers have not changed. It asks the node, because the API may show an outdated status.
func ranOn(t *testing.T, n *cluster.Node, before map[string]*corev1.Pod) {
	t.Helper()
	now := n.Pods()
	for name, old := range before {
		p := now[name]
		if s := p.Status.ContainerStatuses; p.Metadata.UID != string(old.UID) || len(s) != 1 || s[0].ContainerID != container(old) {
			t.Errorf("%s: want container %s of pod %s, have %+v", name, container(old), old.UID, p)
		}
	}
}

// started returns the start time of a pod's first container.
func started(p *corev1.Pod) time.Time {
	if s := p.Status.ContainerStatuses; len(s) > 0 && s[0].State.Running != nil {
		return s[0].State.Running.StartedAt.Time
	}
	return time.Time{}
}

// holding reports whether the node holds pods. In this case islet status contains the command that releases them.
func holding(n *cluster.Node) bool {
	out, _ := n.Try("status")
	return strings.Contains(out, "until islet accept")
}

// held waits until the node reports held pods in its status and in an event. The API server does not have these pods.
func held(t *testing.T, c *cluster.Cluster, n *cluster.Node) {
	t.Helper()
	n.Await("the status to report held pods", func() bool { return holding(n) })
	n.Await("an event of the Node", func() bool {
		return c.Events(t, "", "reason=PodsHeld,involvedObject.kind=Node,involvedObject.name="+n.Name) != ""
	})
}

// TestRestored restores etcd from a backup. It checks that the node follows the restored state and later changes. Pods that exist before
// and after the restore must not restart.
func TestRestored(t *testing.T) {
	c := start(t)
	n := c.Node(t, "")
	n.Join()
	ns := c.Namespace(t)
	c.Apply(t, objects(ns)+dressed(ns, "dressed")+pod(ns, "removed", "", "", "sleep"))
	before := pods(t, c, ns, 3)
	removed := c.AwaitReady(t, ns, "dressed", "removed")
	before["dressed"] = removed["dressed"]
	backup := c.Backup(t)

	c.Apply(t, strings.ReplaceAll(objects(ns), "green", "blue")+pod(ns, "later", "", "", "sleep"))
	c.AwaitReady(t, ns, "later")
	colour := func(want string) {
		t.Helper()
		n.Await("the ConfigMap to be "+want, func() bool { return inside(n, ns, "dressed", "cat", "/conf/paint/colour") == want })
	}
	colour("blue")
	c.Kubectl(t, "-n", ns, "delete", "pod", "removed")
	c.Restore(t, backup)

	colour("green")
	c.AwaitPod(t, ns, "removed", "to run again, as it is wanted again", func(p *corev1.Pod) bool {
		return p.UID == removed["removed"].UID && cluster.PodReady(p) && started(p).After(started(removed["removed"]))
	})
	n.WaitReady("dressed", "p0", "p1", "p2", "removed")
	ranOn(t, n, before)
	own, shop := seen(t, c, n, ns, "dressed")
	valid(t, c, own, ns, "dressed")
	valid(t, c, shop, ns, "dressed", "shop")

	c.Apply(t, strings.ReplaceAll(objects(ns), "green", "red")+pod(ns, "new", "", "", "sleep"))
	c.AwaitReady(t, ns, "new")
	colour("red")
	c.Kubectl(t, "-n", ns, "delete", "pod", "p2", "--wait=false")
	c.AwaitGone(t, before["p2"])
	delete(before, "p2")
	unchanged(t, c, before)
	ranOn(t, n, before)
}

// TestClusterMadeAnew replaces the cluster with an empty one with the same CA. It checks that the node's old pods continue to run beside
// new pods, also after a restart of the agent. The command islet accept must end the old pods. The node must still execute deletions.
func TestClusterMadeAnew(t *testing.T) {
	c := start(t)
	n := c.Node(t, "")
	n.Join()
	ns := c.Namespace(t)
	before := pods(t, c, ns, 3)
	c.Wipe(t)
	// The API server may reject the first event, because the event's namespace does not exist yet.
	n.Await("the status to report held pods", func() bool { return holding(n) })
	n.WaitReady("p0", "p1", "p2")
	ranOn(t, n, before)
	n.Kill()
	n.Start()
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)

	c.Namespace(t)
	c.Apply(t, pod(ns, "new", "", "", "sleep")+pod(ns, "p2", "", "", "sleep"))
	now := c.AwaitReady(t, ns, "new", "p2")
	n.WaitPods("the pod with the reused name to be deleted", func(pods map[string]machine.Pod) bool {
		return len(pods) == 4 && pods["p2"].Metadata.UID == string(now["p2"].UID)
	})
	delete(before, "p2")
	n.Await("the status to report held pods", func() bool { return holding(n) })
	ranOn(t, n, before)
	n.Islet("accept")
	n.WaitReady("new", "p2")
	ranOn(t, n, now)

	var many strings.Builder
	names := []string{"new", "p2"}
	for i := range 6 {
		names = append(names, fmt.Sprint("many", i))
		many.WriteString(pod(ns, names[len(names)-1], "", "", "sleep"))
	}
	c.Apply(t, many.String())
	all := c.AwaitReady(t, ns, names...)
	c.Kubectl(t, "-n", ns, "delete", "pods", "--all", "--wait=false")
	for _, p := range all {
		c.AwaitGone(t, p)
	}
	n.WaitReady()
	if holding(n) {
		t.Error("deleted pods are held")
	}
}

// TestConfigurationWithoutACluster starts a node without the flags of its cluster, as after an edit of the flags by a tool. It checks that
// the pods keep their containers, also after they have restarted without the cluster, until islet accept.
func TestConfigurationWithoutACluster(t *testing.T) {
	c, n, ns := join(t)
	before := pods(t, c, ns, 2)
	n.Kill()
	n.StartAgent("--cert-dir="+n.Disk+"/pki", "--node-ip="+n.Addr)
	n.Await("the status to report held pods", func() bool { return holding(n) })
	n.WaitReady("p0", "p1")
	ranOn(t, n, before)
	n.Kill()
	n.Start()
	c.AwaitNode(t, n.Name, "to be ready again", cluster.NodeReady)
	n.Await("the status to report no held pods", func() bool { return !holding(n) })
	ranOn(t, n, before)
	unchanged(t, c, before)

	n.Kill()
	n.StartAgent("--cert-dir="+n.Disk+"/pki", "--node-ip="+n.Addr)
	n.Await("the status to report held pods", func() bool { return holding(n) })
	n.Islet("accept")
	n.WaitReady()
	n.Await("the agent to run without a cluster", func() bool {
		out, _ := n.Try("status", "-o", "json")
		return strings.HasPrefix(out, "{") && !strings.Contains(out, "NoCredentials")
	})
}

// TestNodeAndPodsDeleted deletes the Node object of a disconnected node and then the node's pods, like pod garbage collection. Only the
// long test waits for the real garbage collection. The node must hold these pods. It must not hold pods that are deleted while their Node
// exists.
func TestNodeAndPodsDeleted(t *testing.T) {
	c, n, ns := join(t)
	before := pods(t, c, ns, 3)
	n.Cut(t)
	c.Kubectl(t, "delete", "node", n.Name)
	if os.Getenv("ISLET_TEST_LONG") == "" {
		for name := range before {
			c.Kubectl(t, "-n", ns, "patch", "pod", name, "--subresource=status", "-p",
				`{"status": {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]}}`)
		}
		c.Kubectl(t, "-n", ns, "delete", "pods", "--all", "--force", "--grace-period=0")
	}
	for _, p := range before {
		c.AwaitGone(t, p)
	}
	n.Restore(t)
	c.AwaitNode(t, n.Name, "to come back", cluster.NodeReady)
	held(t, c, n)
	n.WaitReady("p0", "p1", "p2")
	ranOn(t, n, before)
	n.Islet("accept")
	n.WaitReady()

	deleted := pods(t, c, ns, 8)
	holds := countHolds(t, n)
	n.Cut(t)
	c.Kubectl(t, "-n", ns, "delete", "pods", "p0", "p1", "p2", "--wait=false")
	c.Kubectl(t, "-n", ns, "delete", "pods", "p3", "p4", "p5", "p6", "p7", "--force", "--grace-period=0")
	n.Await("the node to notice that it is cut off", func() bool { _, link := linked(t, n); return link != "Up" })
	n.Restore(t)
	n.WaitReady()
	if now := countHolds(t, n); now != holds || holds == 0 {
		t.Errorf("pods that were deleted while the link was cut were held: %d events, then %d", holds, now)
	}
	for _, p := range deleted {
		c.AwaitGone(t, p)
	}
	lasts, link := linked(t, n)
	t.Logf("the pods were gone at most %v after the link was %s", lasts, link)
}

// linked returns the state of the node's link, and the duration of this state.
func linked(t *testing.T, n *cluster.Node) (lasts time.Duration, link string) {
	t.Helper()
	var status struct {
		Now     time.Time
		Cluster struct {
			Link  string
			Since time.Time
		}
	}
	out, _ := n.Try("status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatal(err)
	}
	return status.Now.Sub(status.Cluster.Since), status.Cluster.Link
}

// countHolds returns how often the node has begun to hold pods since its agent started. Each time the node records an event.
func countHolds(t *testing.T, n *cluster.Node) (holds int) {
	t.Helper()
	var events []struct {
		Reason string
		Count  int
	}
	if err := json.Unmarshal([]byte(n.Islet("events", "-o", "json")), &events); err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Reason == "PodsHeld" {
			holds += e.Count
		}
	}
	return holds
}

// TestAuthorityReplaced replaces the CA of the cluster while the link is cut. It checks that the steps in docs/offline.md reconnect the
// node without a deletion or restart of a pod.
func TestAuthorityReplaced(t *testing.T) {
	c := start(t)
	n := c.Node(t, "")
	n.Join()
	ns := c.Namespace(t)
	c.Apply(t, objects(ns)+dressed(ns, "dressed"))
	before := pods(t, c, ns, 2)
	before["dressed"] = c.AwaitReady(t, ns, "dressed")["dressed"]
	n.Cut(t)
	c.ReplaceAuthority(t)
	n.Restore(t)
	advice := func(when, says string) {
		t.Helper()
		n.Await("doctor to report the problem "+when, func() bool {
			out, _ := n.Try("doctor", "--socket=/run/islet/islet.sock")
			return strings.Contains(out, says) && strings.Contains(out, "replace "+n.Disk+"/kubelet.conf with a kubeconfig")
		})
	}
	advice("with the server", "no link to the API server (ServerCertificateInvalid)")
	n.Await("the status to show the solution", func() bool {
		out, _ := n.Try("status")
		return strings.Contains(out, "if the cluster has a new CA, replace "+n.Disk+"/kubelet.conf with a kubeconfig that has this CA")
	})
	n.WaitReady("dressed", "p0", "p1")

	n.Write("ca.crt", c.Authority()) // the kubelet API verifies its clients with this CA
	n.Write("kubelet.conf", c.NodeKubeconfig(c.Certificate(t, n.Name, time.Now(), time.Now().Add(time.Hour))))
	c.Apply(t, pod(ns, "after", "", "", "sleep"))
	c.AwaitReady(t, ns, "after")
	unchanged(t, c, before)
	ranOn(t, n, before)
	n.Await("the new CA in a pod that runs", func() bool {
		return inside(n, ns, "dressed", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt") == c.Authority()
	})
	if out := c.Kubectl(t, "-n", ns, "exec", "p0", "--", "/podtool", "cat", "/etc/hostname"); out != "p0\n" {
		t.Errorf("exec through the API server: %q", out)
	}
	if out, _ := n.Try("doctor", "--socket=/run/islet/islet.sock"); strings.Contains(out, "no link to the API server") {
		t.Errorf("doctor still reports a problem:\n%s", out)
	}
}
