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

// addOn is a DaemonSet as flannel's: in the host's network it writes the configuration of
// the pod network, and the subnet, which a reboot takes away.
func addOn(n *cluster.Node, ns, subnet string) string {
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
        volumeMounts: [{name: cni, mountPath: %[4]s/cni}, {name: run, mountPath: /run/flannel}]
      volumes:
      - {name: cni, hostPath: {path: %[4]s/cni}}
      - {name: run, hostPath: {path: /run/flannel, type: DirectoryOrCreate}}
---
`, ns, n.Name, machine.Image, n.Disk, subnet)
}

// TestAddOn: a network add-on of the cluster comes to a node whose pods are on the built-in
// network. They move, once, into the network of the add-on, which a restart of the agent
// and a reboot without the API server keep.
func TestAddOn(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	plugin, err := os.ReadFile(filepath.Join(filepath.Dir(machine.Archive(t)), "podtool"))
	if err != nil {
		t.Fatal(err)
	}
	n.Write("bin/flannel", string(plugin))
	if err := os.Chmod(n.Disk+"/bin/flannel", 0o755); err != nil {
		t.Fatal(err)
	}
	n.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %[1]s/cni\ncniBinDirs: [%[1]s/bin]\n", n.Disk))
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
			if pods[name] = p; p.UID != old.UID || p.Status.ContainerStatuses[0].RestartCount != restarts {
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
			if old := now[name]; !p.Ready() || old != nil && p.Status.ContainerStatuses[0].ContainerID == container(old) || old == nil && !strings.HasPrefix(name, "flannel-") {
				return false
			}
		}
		return len(pods) == 4
	})
	n.Restore(t)
	delete(now, "late")
	onAddOn(moved("to show that it runs again", now, 2))
}
