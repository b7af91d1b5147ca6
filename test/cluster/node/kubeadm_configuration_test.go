package node

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A kubeadmMap is kubeadm's ConfigMap of a cluster. It is restored when the test ends.
type kubeadmMap struct {
	t    *testing.T
	c    *cluster.Cluster
	text string // the KubeletConfiguration that kubeadm wrote
}

func newKubeadmMap(t *testing.T, c *cluster.Cluster) *kubeadmMap {
	t.Helper()
	cm, err := c.Admin().CoreV1().ConfigMaps("kube-system").Get(t.Context(), "kubelet-config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := &kubeadmMap{t, c, cm.Data["kubelet"]}
	t.Cleanup(func() { m.patch(map[string]any{"kubelet": m.text, "edge": nil}) })
	return m
}

// patch changes keys. A nil value deletes the key.
func (m *kubeadmMap) patch(data map[string]any) {
	m.t.Helper()
	text, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		m.t.Fatal(err)
	}
	m.c.Kubectl(m.t, "-n", "kube-system", "patch", "configmap", "kubelet-config", "-p", string(text))
}

// TestKubeadmConfiguration checks that a node that kubeadm has joined follows kubeadm's ConfigMap. The node has only the permissions that
// kubeadm grants. Node-specific fields of the local file must not change.
func TestKubeadmConfiguration(t *testing.T) {
	c := start(t)
	m := newKubeadmMap(t, c)
	h := newKubeadmHost(t, c)
	h.join(t, c)
	own := h.Run("cat", "/var/lib/kubelet/config.yaml")
	for text, want := range map[string]string{m.text: `containerRuntimeEndpoint: ""`, own: "containerRuntimeEndpoint: unix:///run/islet/cri.sock"} {
		if !strings.Contains(text, want) {
			t.Fatalf("kubeadm does not have %s in:\n%s", want, text)
		}
	}
	authority := h.Run("sed", "-n", "s/ *clientCAFile: //p",
		"/var/lib/kubelet/config.yaml") // it differs from the path to which kubeadm join writes the CA
	h.Run("install", "-D", "/etc/kubernetes/pki/ca.crt", strings.TrimSpace(authority))
	before := pods(t, c, c.Namespace(t), 2)
	f := &configured{Node: &cluster.Node{Machine: h.Machine}, t: t, c: c}
	f.mayOnlyGet()

	h.Write("edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: "+h.Disk+
		"/cni\nconfiguration: {configMap: kube-system/kubelet-config, healthyFor: 2s, deadline: 25s, consent: [edge.statusPagePort]}\n")
	h.Run("systemctl", "restart", "kubelet")
	f.good("clusterDomain: cluster.local") // from kubeadm
	f.condition(corev1.ConditionTrue, "using configuration ")
	for _, reason := range []string{"ConfigurationOnTrial", "ConfigurationAccepted"} {
		f.event(reason, "")
	}

	changed := m.text + "maxPods: 57\n"
	m.patch(map[string]any{"kubelet": changed})
	h.Run("systemctl", "restart", "kubelet") // the agent reads the ConfigMap when it starts
	c.AwaitNode(t, h.Name, "to have room for 57 pods", func(n *corev1.Node) bool { return n.Status.Capacity.Pods().Value() == 57 })
	f.good("maxPods: 57")

	m.patch(map[string]any{"edge": "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nstatusPagePort: 8099\n"})
	h.Run("systemctl", "restart", "kubelet")
	h.Await("the status page", func() bool {
		s, ok := f.shows()
		if !ok || s.Trying || len(s.History) != 3 {
			return false
		}
		conn, err := h.Dial(t.Context(), "tcp", "127.0.0.1:8099")
		return err == nil && conn.Close() == nil
	})

	m.patch(map[string]any{"kubelet": strings.Replace(changed, "staticPodPath: ", "staticPodPath: /elsewhere", 1)})
	h.Run("systemctl", "restart", "kubelet")
	f.condition(corev1.ConditionFalse, "staticPodPath: Forbidden: it belongs to the node")
	f.good("maxPods: 57")
	unchanged(t, c, before)
	for name, p := range before {
		if out := inside(f.Node, p.Namespace, name, "cat", "/etc/hostname"); out != name+"\n" {
			t.Errorf("the host name of %s is %q", name, out)
		}
	}
	if own != h.Run("cat", "/var/lib/kubelet/config.yaml") {
		t.Error("the local file was changed")
	}
}

// mayOnlyGet checks that the node may read kubeadm's ConfigMap, but may not watch it.
func (f *configured) mayOnlyGet() {
	f.t.Helper()
	for verb, want := range map[string]string{"get": "yes", "list": "no", "watch": "no", "update": "no"} {
		out, _ := f.c.TryKubectl("", "auth", "can-i", "-n", "kube-system", "--as=system:node:"+f.Name, "--as-group=system:nodes", verb,
			"configmap/kubelet-config")
		if !strings.HasPrefix(strings.TrimSpace(out), want) {
			f.t.Errorf("may the node %s it? %s", verb, out)
		}
	}
}
