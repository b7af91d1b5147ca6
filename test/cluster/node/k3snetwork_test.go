package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// networkOverlay contains an administrator's changes to the kustomization for k3s, and the programs of the test instead of flannel and
// kube-proxy. The arguments of the programs stay.
const networkOverlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: %[2]s
resources: [%[1]s]
configMapGenerator:
- {name: cluster, behavior: merge, literals: [KUBERNETES_SERVICE_HOST=10.97.0.1]}
images:
- {name: registry.k8s.io/kube-proxy, newName: %[3]s, newTag: %[4]s}
- {name: ghcr.io/flannel-io/flannel, newName: %[3]s, newTag: %[4]s}
- {name: ghcr.io/flannel-io/flannel-cni-plugin, newName: %[3]s, newTag: %[4]s}
patches:
- target: {kind: DaemonSet, name: kube-proxy}
  patch: |-
    - {op: replace, path: /spec/template/spec/containers/0/command/0, value: sleep}
    - {op: add, path: /spec/template/spec/containers/0/command/0, value: /podtool}
    - {op: add, path: /spec/template/spec/terminationGracePeriodSeconds, value: 2}
- target: {kind: DaemonSet, name: flannel}
  patch: |-
    - {op: replace, path: /spec/template/spec/containers/0/command, value: [/podtool, flannel, /run/flannel, %[5]s]}
    - {op: replace, path: /spec/template/spec/initContainers/0/command/2, value: /podtool}
    - {op: add, path: /spec/template/spec/initContainers/0/command/0, value: /podtool}
    - {op: add, path: /spec/template/spec/initContainers/1/command/0, value: /podtool}
    - {op: add, path: /spec/template/spec/terminationGracePeriodSeconds, value: 2}
`

// TestK3sNetwork applies the kustomization with the network for nodes of a k3s cluster (docs/from-k3s.md). The API server accepts and keeps
// each field. On a node with the label, the pods start in the host's network with the mounts, the privileges and the address of the API
// server that the manifests ask for. Then the other pods of the node move to the network, as with flannel.
func TestK3sNetwork(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.OwnDirs("/etc", "/opt", "/var/lib")
	n.Run("mkdir", "-p", "/opt/cni/bin")
	for _, plugin := range []string{"bridge", "host-local", "loopback", "portmap"} { // as install.sh does
		n.Run("ln", "-sf", n.Binary(), "/opt/cni/bin/"+plugin)
	}
	n.Write("edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n")
	n.Join()
	ns := c.Namespace(t)
	node := c.AwaitNode(t, n.Name, "to have a podCIDR", func(n *corev1.Node) bool { return n.Spec.PodCIDR != "" })
	c.Apply(t, pod(ns, "web", "", "", "serve", ":80"))
	before := c.AwaitReady(t, ns, "web")["web"]

	here := t.TempDir()
	base, err := filepath.Rel(here, filepath.Join(machine.Root(t), "packaging/kustomize/k3s-network"))
	if err != nil {
		t.Fatal(err)
	}
	name, tag, _ := strings.Cut(machine.Image, ":")
	text := fmt.Sprintf(networkOverlay, base, ns, name, tag, node.Spec.PodCIDR)
	if err := os.WriteFile(filepath.Join(here, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	applyKustomization(t, c, here, 10)
	c.Kubectl(t, "label", "node", n.Name, "islet.dev/node=true")
	pods := map[string]string{}
	for _, app := range []string{"flannel", "kube-proxy"} {
		c.Kubectl(t, "-n", ns, "rollout", "status", "daemonset/"+app, "--timeout=180s")
		out := c.Kubectl(t, "-n", ns, "get", "pods", "-l", "app="+app, "-o", "jsonpath={.items[*].metadata.name} {.items[*].status.podIP}")
		var address string
		if _, err := fmt.Sscan(out, new(string), &address); err != nil || address != n.Addr {
			t.Errorf("the pod of %s is not in the host's network: %q, %v", app, out, err)
		}
		pods[app], _, _ = strings.Cut(out, " ")
	}
	in := func(app string, args ...string) (string, error) {
		return c.TryKubectl("", append([]string{"-n", ns, "exec", pods[app], "-c", app, "--", "/podtool"}, args...)...)
	}
	for app := range pods {
		env, err := in(app, "env")
		for _, want := range []string{"KUBERNETES_SERVICE_HOST=10.97.0.1", "KUBERNETES_SERVICE_PORT=6443", "NODE_NAME=" + n.Name} {
			if err != nil || !slices.Contains(strings.Split(env, "\n"), want) {
				t.Errorf("%s has no %s: %v\n%s", app, want, err, env)
			}
		}
		if out, err := in(app, "open", "/run/xtables.lock"); err != nil {
			t.Errorf("%s cannot write the lock of iptables: %v %s", app, err, out)
		}
	}
	if line, err := in("kube-proxy", "cat", "/proc/1/cmdline"); err != nil ||
		!strings.Contains(line, "\x00--hostname-override="+n.Name+"\x00--cluster-cidr=10.42.0.0/16\x00") {
		t.Errorf("the command of kube-proxy: %q, %v", line, err)
	}
	if out, err := in("kube-proxy", "open", "/proc/sys/net/ipv4/ip_forward"); err != nil {
		t.Errorf("kube-proxy cannot write sysctls: %v %s", err, out)
	}
	if out, err := in("kube-proxy", "write", "/lib/modules/test", "x"); err == nil {
		t.Errorf("kube-proxy can write modules: %s", out)
	}
	if status, err := in("flannel", "cat", "/proc/self/status"); err != nil || capabilities(t, status)&(1<<12|1<<13) != 1<<12|1<<13 {
		t.Errorf("flannel lacks NET_ADMIN or NET_RAW: %v\n%s", err, status)
	}
	if out, err := in("flannel", "open", "/proc/sys/net/ipv4/ip_forward"); err == nil {
		t.Errorf("flannel is privileged: %s", out)
	}

	web := c.AwaitPod(t, ns, "web", "to move", func(p *corev1.Pod) bool { return container(p) != container(before) && cluster.PodReady(p) })
	ip, err := netip.ParseAddr(web.Status.PodIP)
	if err != nil || !netip.MustParsePrefix(node.Spec.PodCIDR).Contains(ip) || !slices.Contains(n.Links(), "cni0") {
		t.Errorf("the pod has the address %s, and the node the interfaces %q", web.Status.PodIP, n.Links())
	}
	c.Kubectl(t, "label", "node", n.Name, "islet.dev/node-")
	n.Await("the pods of the network to end", func() bool { return len(n.Pods()) == 1 })
}

// capabilities returns the effective capabilities in the text of /proc/PID/status.
func capabilities(t *testing.T, status string) uint64 {
	t.Helper()
	_, after, _ := strings.Cut(status, "CapEff:")
	line, _, _ := strings.Cut(after, "\n")
	caps, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return caps
}

// applyKustomization applies a kustomization of at least the given number of documents until the test ends, and checks that the API server
// has kept each field.
func applyKustomization(t *testing.T, c *cluster.Cluster, dir string, least int) {
	t.Helper()
	t.Cleanup(func() { c.Kubectl(t, "delete", "-k", dir, "--wait=false", "--ignore-not-found") })
	c.Kubectl(t, "apply", "-k", dir, "--validate=strict")
	checkKept(t, c, dir, least)
}

// checkKept checks that each field of a kustomization that was applied is in the API server. It has at least the given number of documents.
func checkKept(t *testing.T, c *cluster.Cluster, dir string, least int) {
	t.Helper()
	var found struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(c.Kubectl(t, "get", "-k", dir, "-o", "json")), &found); err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(c.Kubectl(t, "kustomize", dir), "\n---\n")
	if len(documents) != len(found.Items) || len(documents) < least {
		t.Fatalf("%d documents, and %d objects", len(documents), len(found.Items))
	}
	for _, text := range documents {
		var want map[string]any
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(found.Items, func(is map[string]any) bool { return isPartOf(want, is) }) {
			t.Errorf("the API server has not kept each field of\n%s", text)
		}
	}
}

// isPartOf reports whether each field of a value is in another value. Lists must have the same length.
func isPartOf(want, is any) bool {
	switch want := want.(type) {
	case map[string]any:
		is, ok := is.(map[string]any)
		for key, value := range want {
			ok = ok && isPartOf(value, is[key])
		}
		return ok
	case []any:
		is, ok := is.([]any)
		ok = ok && len(is) == len(want)
		for i := range want {
			ok = ok && isPartOf(want[i], is[i])
		}
		return ok
	}
	return reflect.DeepEqual(want, is)
}
