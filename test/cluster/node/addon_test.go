package node

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// addOn returns a DaemonSet that works like flannel's. Its pods write the configuration of the pod network and a file with the subnet. A
// reboot deletes the file with the subnet. The last arguments are the subnets of other nodes with their addresses.
func addOn(n *cluster.Node, ns, subnet string, peers ...string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: flannel, namespace: %[1]s}
spec:
  selector: {matchLabels: {app: flannel}}
  template:
    metadata: {labels: {app: flannel}}
    spec:
      nodeSelector: {kubernetes.io/hostname: %[2]s}
      hostNetwork: true
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 2
      containers:
      - name: c
        image: %[3]s
        imagePullPolicy: Never
        args: [flannel, %[4]s/cni, %[5]s]
        securityContext: {capabilities: {add: [NET_ADMIN]}}
        volumeMounts: [{name: cni, mountPath: %[4]s/cni}, {name: run, mountPath: /run/flannel}]
      volumes:
      - {name: cni, hostPath: {path: %[4]s/cni}}
      - {name: run, hostPath: {path: /run/flannel, type: DirectoryOrCreate}}
---
`, ns, n.Name, machine.Image, n.Disk, strings.Join(append([]string{subnet}, peers...), ", "))
}

// installAddOn installs the add-on's plugin on a machine and configures it.
func installAddOn(t testing.TB, n *cluster.Node, networkPlugin string) {
	t.Helper()
	plugin, err := os.ReadFile(filepath.Join(filepath.Dir(machine.Archive(t)), "podtool"))
	if err != nil {
		t.Fatal(err)
	}
	n.Write("bin/flannel", string(plugin))
	if err := os.Chmod(n.Disk+"/bin/flannel", 0o755); err != nil {
		t.Fatal(err)
	}
	n.Write("edge.yaml", fmt.Sprintf(
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nnetworkPlugin: %[2]s\ncniConfDir: %[1]s/cni\ncniBinDirs: [%[1]s/bin]\n",
		n.Disk, networkPlugin))
}

// TestAddOn checks that a cluster's network add-on replaces the built-in network of running pods. Each pod must move once. The pods must
// keep the add-on's network after a restart of the agent, and after a reboot while the API server is unreachable.
func TestAddOn(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	installAddOn(t, n, "auto")
	n.Join()
	ns := c.Namespace(t)
	node := c.AwaitNode(t, n.Name, "to have a podCIDR", func(n *corev1.Node) bool { return n.Spec.PodCIDR != "" })
	c.Apply(t, pod(ns, "web", "", "", "serve", ":80")+pod(ns, "app", "", "", "sleep"))
	before := c.AwaitReady(t, ns, "web", "app")
	if links := n.Links(); !slices.Contains(links, "islet0") {
		t.Errorf("interfaces are %q", links)
	}

	onAddOn := func(pods map[string]*corev1.Pod) {
		t.Helper()
		for name, p := range pods {
			if ip, err := netip.ParseAddr(p.Status.PodIP); err != nil || !netip.MustParsePrefix(node.Spec.PodCIDR).Contains(ip) {
				t.Errorf("%s has address %q, the node's podCIDR is %s", name, p.Status.PodIP, node.Spec.PodCIDR)
			}
		}
		if links := n.Links(); !slices.Contains(links, "cni0") || slices.Contains(links, "islet0") {
			t.Errorf("interfaces are %q", links)
		}
		if got := inside(n, ns, "app", "get", "http://"+pods["web"].Status.PodIP); got != "web\n" {
			t.Errorf("from pod to pod: %q", got)
		}
	}
	moved := func(what string, before map[string]*corev1.Pod, restarts int32) map[string]*corev1.Pod {
		t.Helper()
		pods := map[string]*corev1.Pod{}
		for name, old := range before {
			p := c.AwaitPod(t, ns, name, what, func(p *corev1.Pod) bool { return container(p) != container(old) && cluster.PodReady(p) })
			pods[name] = p
			if p.UID != old.UID || p.Status.ContainerStatuses[0].RestartCount != restarts {
				t.Errorf("%s was %+v, and is %+v", name, old.Status, p.Status)
			}
		}
		return pods
	}
	c.Apply(t, addOn(n, ns, node.Spec.PodCIDR))
	now := moved("to move", before, 1)
	onAddOn(now)
	c.AwaitNode(t, n.Name, "to be ready", cluster.NodeReady)

	n.Kill()
	n.Start()
	c.Apply(t, pod(ns, "late", "", "", "sleep"))
	now["late"] = c.AwaitReady(t, ns, "late")["late"]
	ranOn(t, n, now)
	onAddOn(now)

	n.Cut(t)
	n.Reboot()
	n.Start()
	n.WaitPods("every pod to run again", func(pods map[string]machine.Pod) bool {
		for name, p := range pods {
			if old := now[name]; !p.Ready() || old != nil && p.Status.ContainerStatuses[0].ContainerID == container(old) || old == nil &&
				!strings.HasPrefix(name, "flannel-") {
				return false
			}
		}
		return len(pods) == 4
	})
	n.Restore(t)
	delete(now, "late")
	onAddOn(moved("to show that it runs again", now, 2))
}

// An other adds a suffix to the name of a test, for the names of a second node and a second namespace.
type other struct{ testing.TB }

func (o other) Name() string { return o.TB.Name() + "-other" }

// TestHostGateway checks that nodes with networkPlugin cni wait for the add-on. Then pods of two nodes must reach each other, also after a
// reboot of one node.
func TestHostGateway(t *testing.T) {
	t.Parallel()
	c := start(t)
	sides := []*struct {
		t    testing.TB
		n    *cluster.Node
		ns   string
		cidr string
		addr string
		web  *corev1.Pod
	}{{t: t}, {t: other{t}}}
	for _, s := range sides {
		s.n = c.Node(s.t, "")
		installAddOn(s.t, s.n, "cni")
		s.n.Start()
		s.ns = c.Namespace(s.t)
		s.cidr = c.AwaitNode(t, s.n.Name, "to have a podCIDR", func(n *corev1.Node) bool { return n.Spec.PodCIDR != "" }).Spec.PodCIDR
	}
	a, b := sides[0], sides[1]
	a.addr, b.addr = c.Wire(t, a.n, b.n)
	c.Apply(t, addOn(a.n, a.ns, a.cidr, b.cidr+"="+b.addr)+addOn(b.n, b.ns, b.cidr, a.cidr+"="+a.addr))
	for _, s := range sides {
		c.AwaitNode(t, s.n.Name, "to be ready", cluster.NodeReady)
		c.Apply(t, pod(s.ns, "web", "", "", "serve", ":80"))
	}
	for _, s := range sides {
		s.web = c.AwaitReady(t, s.ns, "web")["web"]
	}
	reach := func(when string) {
		t.Helper()
		for _, way := range [][2]int{{0, 1}, {1, 0}} {
			from, to := sides[way[0]], sides[way[1]]
			if got := inside(from.n, from.ns, "web", "get", "http://"+to.web.Status.PodIP); got != "web\n" {
				t.Errorf("%s, from %s to %s: %q", when, from.n.Name, to.n.Name, got)
			}
		}
	}
	reach("at first")

	a.n.Reboot()
	a.n.Start()
	old := container(a.web)
	a.web = c.AwaitPod(t, a.ns, "web", "to run again", func(p *corev1.Pod) bool { return container(p) != old && cluster.PodReady(p) })
	reach("after a reboot")
}
