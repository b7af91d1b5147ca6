package node

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// TestLinkCut checks that pods continue to run while the API server is unreachable. Changes during this time must be applied when the link
// is restored.
func TestLinkCut(t *testing.T) {
	c, n, ns := join(t)
	before := pods(t, c, ns, 3)
	c.Apply(t, objects(ns)+dressed(ns, "dressed")+pod(ns, "deleted", "", "", "sleep")+pod(ns, "evicted", "", "", "sleep")+pod(ns,
		"replaced", "", "", "sleep")+
		pod(ns, "restarts", "", "", "exit", "1", "1s"))
	gone := c.AwaitReady(t, ns, "deleted", "evicted", "replaced")
	crashes := c.AwaitReady(t, ns, "dressed")["dressed"]
	own, shop := seen(t, c, n, ns, "dressed")

	n.Cut(t)
	n.Await("local commands to answer", func() bool { return inside(n, ns, "p0", "cat", "/etc/hostname") == "p0\n" })
	c.Kubectl(t, "-n", ns, "delete", "pod", "deleted", "--wait=false")
	c.Kubectl(t, "-n", ns, "delete", "pod", "evicted", "replaced", "--force", "--grace-period=0")
	c.Apply(t, pod(ns, "replaced", "nodeName: "+n.Name, "", "sleep")+pod(ns, "new", "nodeName: "+n.Name, "", "sleep"))
	count := n.Pods()["restarts"].Status.ContainerStatuses[0].RestartCount
	n.WaitPods("a container to be restarted by policy", func(pods map[string]machine.Pod) bool {
		return pods["restarts"].Status.ContainerStatuses[0].RestartCount > count
	})
	crash(t, n, crashes)
	n.WaitPods("the container that was killed to run again", func(pods map[string]machine.Pod) bool {
		return pods["dressed"].Ready() && pods["dressed"].Status.ContainerStatuses[0].RestartCount == 1
	})
	if o, s := seen(t, c, n, ns, "dressed"); o != own || s != shop {
		t.Error("a restarted container has other tokens")
	}
	n.Restore(t)

	c.AwaitReady(t, ns, "new", "replaced")
	for _, p := range gone {
		c.AwaitGone(t, p)
	}
	unchanged(t, c, before)
	n.WaitPods("the pods of the API, and no others", func(pods map[string]machine.Pod) bool {
		_, evicted := pods["evicted"]
		_, deleted := pods["deleted"]
		return !evicted && !deleted && len(pods) == 7 && pods["replaced"].Metadata.UID != string(gone["replaced"].UID)
	})
	c.AwaitPod(t, ns, "restarts", "to show its restarts", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && int(p.Status.ContainerStatuses[0].RestartCount) > count
	})
}

// TestRebootCutOff checks that all pods run again after a reboot without a network, with their ConfigMaps, Secrets and tokens. One pod has
// not run before the reboot, because it waits for a former pod with the same name that does not end.
func TestRebootCutOff(t *testing.T) {
	c, n, ns := join(t)
	n.Write("manifests/static.yaml", pod(ns, "static", "", "", "sleep"))
	var all strings.Builder
	var names []string
	for _, i := range "abcdefghij" {
		names = append(names, string(i))
		all.WriteString(dressed(ns, string(i)))
	}
	c.Apply(t, objects(ns)+all.String())
	c.Kubectl(t, "label", "node", n.Name, "site=roof")
	c.Apply(t, pod(ns, "roof", "nodeSelector: {site: roof}", "", "sleep"))
	const short, long = "terminationGracePeriodSeconds: 2", "terminationGracePeriodSeconds: 300"
	c.Apply(t, strings.Replace(pod(ns, "replaced", "", "", "stubborn"), short, long, 1))
	former := c.AwaitReady(t, ns, "replaced")["replaced"]
	node := c.AwaitNode(t, n.Name, "to have a podCIDR", func(n *corev1.Node) bool { return n.Spec.PodCIDR != "" })
	everyone := append([]string{"roof"}, names...)
	before := c.AwaitReady(t, ns, everyone...)
	tokens := map[string]string{}
	for _, name := range names {
		own, shop := seen(t, c, n, ns, name)
		tokens[name] = own + shop
	}
	everyone = append(everyone, "static-"+n.Name, "replaced")
	n.WaitReady(everyone...)
	c.Kubectl(t, "-n", ns, "delete", "pod", "replaced", "--force", "--grace-period=0")
	c.Apply(t, dressed(ns, "replaced"))
	before["replaced"] = c.AwaitPod(t, ns, "replaced", "to show that it waits for the former pod", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return p.UID != former.UID && len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Message != ""
	})

	n.Cut(t)
	n.Reboot()
	began := time.Now()
	n.Start()
	after := n.WaitReady(everyone...)
	within(t, "13 pods are back", began, 5*time.Second)
	for name, p := range after {
		ip, err := netip.ParseAddr(p.Status.PodIP)
		if err != nil || !netip.MustParsePrefix(node.Spec.PodCIDR).Contains(ip) || !strings.HasPrefix(name, "static-") &&
			p.Metadata.UID != string(before[name].UID) {
			t.Errorf("%s is %+v", name, p)
		}
	}
	for _, name := range names {
		own, shop := seen(t, c, n, ns, name)
		if own+shop != tokens[name] {
			t.Errorf("the tokens of %s have changed", name)
		}
	}
	seen(t, c, n, ns, "replaced")

	n.Restore(t)
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)
	for name, p := range after {
		if strings.HasPrefix(name, "static-") {
			continue
		}
		id := p.Status.ContainerStatuses[0].ContainerID
		now := c.AwaitPod(t, ns, name, "to show its new container", func(p *corev1.Pod) bool { return cluster.PodReady(p) && container(p) == id })
		if now.UID != before[name].UID {
			t.Errorf("%s is another pod", name)
		}
	}
	own, shop := seen(t, c, n, ns, "a")
	valid(t, c, own, ns, "a")
	valid(t, c, shop, ns, "a", "shop")
}

// deleteStore deletes the database of a node. The agent may be running.
func deleteStore(t *testing.T, n *cluster.Node) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.Disk, "state/islet.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no database: %v", err)
	}
	for _, f := range files {
		n.Remove(strings.TrimPrefix(f, n.Disk))
	}
}

// TestStoreDeletedCutOff deletes the database while the link is cut: with a killed agent, with a running agent, and before a reboot. The
// agent must adopt running pods at once, and restarted containers must have their former environment. After the reboot, static pods must
// run, and pods of the API server must wait until the link is restored. The reboot needs ISLET_TEST_LONG.
func TestStoreDeletedCutOff(t *testing.T) {
	c, n, ns := join(t)
	n.Write("manifests/static.yaml", pod(ns, "static", "", "", "sleep"))
	c.Apply(t, objects(ns)+dressed(ns, "dressed"))
	c.Apply(t, pod(ns, "p0", "automountServiceAccountToken: false", "", "sleep")+pod(ns, "p1", "", "", "sleep"))
	before := c.AwaitReady(t, ns, "dressed", "p0", "p1")
	everyone := []string{"dressed", "p0", "p1", "static-" + n.Name}
	n.WaitReady(everyone...)
	n.Cut(t)

	n.Kill()
	deleteStore(t, n)
	n.Start()
	n.WaitReady(everyone...)
	ranOn(t, n, before)
	deleteStore(t, n)
	n.Kill()
	n.Start()
	n.WaitReady(everyone...)
	ranOn(t, n, before)
	if _, code := n.Try("delete", "p0", "-n", ns); code == 0 {
		t.Error("a pod of the API server was deleted on the node")
	}
	env := func() []string {
		return slices.Sorted(strings.Lines(inside(n, ns, "dressed", "env")))
	}
	environment := env()
	for _, name := range []string{"p0", "dressed"} {
		crash(t, n, before[name])
		n.WaitPods("the container that was killed to run again", func(pods map[string]machine.Pod) bool {
			return pods[name].Ready() && pods[name].Status.ContainerStatuses[0].RestartCount == 1
		})
	}
	if again := env(); !slices.Equal(again, environment) {
		t.Errorf("a restarted container has the environment\n%s\nand had\n%s", again, environment)
	}

	if os.Getenv("ISLET_TEST_LONG") == "" {
		return
	}
	n.PowerOff()
	deleteStore(t, n)
	n.Boot()
	n.Start()
	n.WaitPods("the pods to be there after the boot", func(pods map[string]machine.Pod) bool {
		for name, old := range before {
			s := pods[name].Status.ContainerStatuses
			if pods[name].Metadata.UID != string(old.UID) || len(s) != 1 {
				return false
			}
			// A container whose start has failed waits. One whose pod waits for volumes is still the one that the reboot ended.
			if waits, ended := s[0].State.Waiting, s[0].State.Terminated; (waits == nil || waits.Message == "") && ended == nil {
				return false
			}
		}
		return pods["static-"+n.Name].Ready() && len(pods) == len(everyone)
	})
	n.Restore(t)
	for name, old := range before {
		c.AwaitPod(t, ns, name, "to be ready again", func(p *corev1.Pod) bool {
			return cluster.PodReady(p) && p.UID == old.UID && container(p) != container(old)
		})
	}
	taken := map[string]bool{}
	for name, p := range n.WaitReady(everyone...) {
		if taken[p.Status.PodIP] || p.Status.PodIP == "" {
			t.Errorf("%s has no unique address: %q", name, p.Status.PodIP)
		}
		taken[p.Status.PodIP] = true
	}
}

// TestRestartCutOff checks that no pod restarts when the agent is killed with SIGKILL while the link is cut.
func TestRestartCutOff(t *testing.T) {
	c, n, ns := join(t)
	before := pods(t, c, ns, 3)
	n.Cut(t)
	n.Kill()
	n.Start()
	n.WaitReady("p0", "p1", "p2")
	n.Restore(t)
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)
	unchanged(t, c, before)
}

// TestApiserverComesAndGoes checks that pods do not restart when the API server is killed, or the link flaps or drops all packets. New
// pods must start soon afterwards.
func TestApiserverComesAndGoes(t *testing.T) {
	c := start(t) // not parallel, because all tests share the API server
	n := c.Node(t, "")
	n.Join()
	ns := c.Namespace(t)
	before := pods(t, c, ns, 3)
	gone := pods(t, c, ns, 4)["p3"]
	// The new API server has no history, so the resource version of the node is too old for a watch.
	n.Cut(t)
	c.Kubectl(t, "-n", ns, "delete", "pod", "p3", "--wait=false")
	c.Apply(t, pod(ns, "meanwhile", "nodeName: "+n.Name, "", "sleep"))
	c.StopAPIServer(t)
	c.StartAPIServer(t)
	n.Restore(t)
	c.AwaitReady(t, ns, "meanwhile")
	c.AwaitGone(t, gone)
	n.Flap(t, 3, 2*time.Second, 2*time.Second)
	soon(t, c, ns, "flapped", 10*time.Second)
	n.Silence(t)
	cluster.Pass(30 * time.Second)
	n.Restore(t)
	soon(t, c, ns, "silent", 20*time.Second)
	unchanged(t, c, before)
}

// soon checks that a new pod becomes ready within a time limit.
func soon(t *testing.T, c *cluster.Cluster, ns, name string, limit time.Duration) {
	t.Helper()
	began := time.Now()
	c.Apply(t, pod(ns, name, "", "", "sleep"))
	c.AwaitReady(t, ns, name)
	within(t, "the new pod "+name+" is ready", began, limit)
}

// TestFaults checks that a node sends few requests to a failing or slow API server. After the API server has recovered, the node must use
// it again soon.
func TestFaults(t *testing.T) {
	c, proxy, n, ns := joinProxy(t)
	before := pods(t, c, ns, 3)
	wait := func() { cluster.Pass(12 * time.Second) }
	const slow = 5 * time.Second
	for _, x := range []struct {
		name       string
		begin, run func()
		underway   time.Duration // time that a pending request may still take
	}{
		{"too-many", func() { proxy.Fail(http.StatusTooManyRequests, time.Second) }, wait, 0},
		{"unavailable", func() { proxy.Fail(http.StatusServiceUnavailable, 0) }, wait, 0},
		{"error", func() { proxy.Fail(http.StatusInternalServerError, 0) }, wait, 0},
		{"flapping", func() {}, func() { n.Flap(t, 4, time.Second, 2*time.Second) }, 0},
		{"slow", func() { proxy.Delay(slow) }, wait, slow},
	} {
		x.begin()
		proxy.Requests()
		c.Kubectl(t, "-n", ns, "delete", "pod", "p2", "--ignore-not-found", "--wait=false")
		delete(before, "p2")
		x.run()
		by, sum := proxy.Requests()
		if t.Logf("%s: %d requests in 12 s", x.name, sum); sum > 60 {
			t.Errorf("too many requests: %v", by)
		}
		proxy.Heal()
		soon(t, c, ns, x.name, x.underway+15*time.Second) // the longest back-off and the start of the pod
	}
	unchanged(t, c, before)
}

// TestNamespaceDeleted deletes a namespace while the link is cut. It checks that the pods of the namespace continue to run, and end when
// the link is restored.
func TestNamespaceDeleted(t *testing.T) {
	c, n, ns := join(t)
	c.Apply(t, objects(ns)+dressed(ns, "dressed"))
	c.AwaitReady(t, ns, "dressed")
	n.Cut(t)
	c.Kubectl(t, "delete", "namespace", ns, "--wait=false")
	c.AwaitPod(t, ns, "dressed", "to be deleted", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	n.WaitReady("dressed")
	n.Restore(t)
	c.Kubectl(t, "wait", "--for=delete", "namespace/"+ns, "--timeout=60s")
	n.WaitReady()
}

// TestSealed checks that the database without its key file reveals no Secret and no token.
func TestSealed(t *testing.T) {
	c, n, ns := join(t)
	c.Apply(t, objects(ns)+dressed(ns, "dressed"))
	c.AwaitReady(t, ns, "dressed")
	own, _ := seen(t, c, n, ns, "dressed")
	files, err := filepath.Glob(filepath.Join(n.Disk, "state/islet.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no database: %v", err)
	}
	for _, f := range files {
		for _, secret := range []string{"sesame", own} {
			if contains(t, f, secret) {
				t.Errorf("%s contains a secret in plain text", f)
			}
		}
	}
	if key, err := os.Stat(filepath.Join(n.Disk, "state/store.key")); err != nil || key.Mode().Perm() != 0o600 {
		t.Errorf("the key file: %v, %v", key, err)
	}
	for _, e := range n.ExposedFiles() {
		t.Error(e)
	}
}
