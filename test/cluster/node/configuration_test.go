package node

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A configured is a node whose configuration comes from a ConfigMap in kube-system.
type configured struct {
	*cluster.Node
	t     *testing.T
	c     *cluster.Cluster
	files string // KubeletConfiguration of the local files
}

// follow returns a node that may read one ConfigMap and does not yet use it. A trial takes at least healthyFor.
func follow(t *testing.T, healthyFor string) (*configured, map[string]*corev1.Pod) {
	t.Helper()
	return followWith(t, healthyFor, func(*cluster.Node) string { return "" })
}

// followWith is like follow, with additional lines of the node's EdgeConfiguration.
func followWith(t *testing.T, healthyFor string, edge func(*cluster.Node) string) (*configured, map[string]*corev1.Pod) {
	t.Helper()
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.Write("edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: "+n.Disk+
		"/cni\nconfiguration: {healthyFor: "+healthyFor+", deadline: 25s, consent: [authentication.x509.clientCAFile, address, port]}\n"+edge(n))
	n.Join()
	f := &configured{Node: n, t: t, c: c, files: n.Run("cat", n.Disk+"/kubelet.yaml")}
	name := n.Name + "-config"
	t.Cleanup(func() {
		c.Kubectl(t, "-n", "kube-system", "delete", "configmap/"+name, "configmap/"+name+"-other", "role/"+name, "rolebinding/"+name,
			"--ignore-not-found")
	})
	c.Apply(t, fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s, namespace: kube-system}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [%[1]s], verbs: [get, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:node:%[2]s"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s-other, namespace: kube-system}
data: {kubelet: "not to be read"}
`, name, n.Name))
	return f, pods(t, c, c.Namespace(t), 2)
}

// send writes the ConfigMap with a changed copy of the local file.
func (f *configured) send(old, changed string) {
	f.t.Helper()
	text, err := json.Marshal(strings.Replace(f.files, old, changed, 1) + "\n")
	if err != nil {
		f.t.Fatal(err)
	}
	f.c.Apply(f.t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s-config, namespace: kube-system}\ndata: {kubelet: %s}\n",
		f.Name, text))
}

// condition waits until the Node's condition KubeletConfigOk has the given status, and a message with the given part.
func (f *configured) condition(status corev1.ConditionStatus, message string) *corev1.Node {
	f.t.Helper()
	return f.c.AwaitNode(f.t, f.Name, fmt.Sprintf("to have KubeletConfigOk %s: %s", status, message), func(n *corev1.Node) bool {
		c := nodeCondition(n, "KubeletConfigOk")
		return c.Status == status && strings.Contains(c.Message, message)
	})
}

// event waits for an event of the Node.
func (f *configured) event(reason, message string) {
	f.t.Helper()
	f.Await("the event "+reason, func() bool {
		list, err := f.c.Admin().CoreV1().Events("default").List(f.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + f.Name + ",reason=" + reason})
		if err != nil {
			f.t.Fatal(err)
		}
		for _, e := range list.Items {
			if strings.Contains(e.Message, message) {
				return true
			}
		}
		return false
	})
}

// shows returns the output of islet config show.
func (f *configured) shows() (s struct {
	Active, LastKnownGood struct{ ID, Kubelet string }
	Assigned              *struct{ ID string }
	Trying                bool
	History               []struct{ ID, Why string }
}, ok bool) {
	out, code := f.Try("config", "show", "-o", "json")
	return s, code == 0 && json.Unmarshal([]byte(out), &s) == nil
}

// onTrial waits for the trial of a sent configuration. It reads the stored state, because a trial may end before a command gets a
// response.
func (f *configured) onTrial() {
	f.t.Helper()
	f.Await("a trial", func() bool {
		b, err := os.ReadFile(f.Disk + "/state/configuration.json")
		return err == nil && strings.Contains(string(b), `"trial":{`)
	})
}

// good waits until a configuration with the given part is in use and no trial runs.
func (f *configured) good(part string) {
	f.t.Helper()
	f.Await("a good configuration with "+part, func() bool {
		s, ok := f.shows()
		return ok && !s.Trying && s.Active == s.LastKnownGood && strings.Contains(s.Active.Kubelet, part)
	})
}

// TestSentConfiguration checks a node with the annotation of a ConfigMap. The node must accept a good configuration, and reject or revert a
// bad one. The result must be visible in the Node, its events and its metrics. Access to this one ConfigMap must be sufficient for the
// node.
func TestSentConfiguration(t *testing.T) {
	f, before := follow(t, "2s")
	f.send("", "maxPods: 37\n")
	f.c.Kubectl(t, "annotate", "node", f.Name, "islet.dev/config-map="+f.Name+"-config")
	n := f.condition(corev1.ConditionTrue, "using configuration ")
	f.event("ConfigurationOnTrial", "")
	f.event("ConfigurationAccepted", "")
	f.c.AwaitNode(t, f.Name, "to have room for 37 pods", func(n *corev1.Node) bool { return n.Status.Capacity.Pods().Value() == 37 })
	unchanged(t, f.c, before)
	f.status(n)
	f.metric("kubelet_node_config_error 0")
	f.metric(`node_config_source="/api/v1/namespaces/kube-system/configmaps/` + f.Name + `-config"`)
	f.allowed()

	f.send("", "maxPods: 1\nportt: 3\n") // rejected without a trial
	f.condition(corev1.ConditionFalse, "portt")
	f.event("ConfigurationRefused", "portt")
	f.metric("kubelet_node_config_error 1")

	f.Write("other.crt", string(f.otherAuthority()))
	f.send("ca.crt", "other.crt") // a valid configuration that locks out all clients
	f.condition(corev1.ConditionFalse, "does not accept the node's own certificate")
	f.event("ConfigurationFailed", "clientCAFile")
	unchanged(t, f.c, before)
	if out, err := f.c.TryKubectl("", "get", "--raw", "/api/v1/nodes/"+f.Name+"/proxy/healthz"); err != nil || out != "ok" {
		t.Errorf("the kubelet API: %v, %s", err, out)
	}

	f.c.Kubectl(t, "annotate", "node", f.Name, "islet.dev/config-map-") // returns to the local files
	f.c.AwaitNode(t, f.Name, "to have room for 110 pods", func(n *corev1.Node) bool { return n.Status.Capacity.Pods().Value() == 110 })
	f.c.Kubectl(t, "annotate", "node", f.Name, "islet.dev/config-map=default/mine")
	f.condition(corev1.ConditionFalse, "is not in kube-system")
	unchanged(t, f.c, before)
}

// status checks the status annotation of a Node that uses the ConfigMap.
func (f *configured) status(n *corev1.Node) {
	f.t.Helper()
	var s corev1.NodeConfigStatus
	text := n.Annotations["islet.dev/configuration-status"]
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Active == nil || s.LastKnownGood == nil ||
		s.Active.ConfigMap.Name != f.Name+"-config" || s.Active.ConfigMap.UID == "" || s.Error != "" {
		f.t.Errorf("%v: %s", err, text)
	}
}

// metric waits until the metrics contain a text.
func (f *configured) metric(part string) {
	f.t.Helper()
	f.Await(part, func() bool {
		out, err := f.c.Raw(f.t, "/api/v1/nodes/"+f.Name+"/proxy/metrics")
		return err == nil && strings.Contains(out, part)
	})
}

// allowed checks that the API server allows the node to read its ConfigMap and no other one.
func (f *configured) allowed() {
	f.t.Helper()
	for args, want := range map[string]string{
		"get configmap/" + f.Name + "-config":       "yes",
		"watch configmap/" + f.Name + "-config":     "yes",
		"update configmap/" + f.Name + "-config":    "no",
		"get configmap/" + f.Name + "-config-other": "no",
		"list configmaps":                           "no",
		"watch configmaps":                          "no",
	} {
		out, _ := f.c.TryKubectl("", append([]string{"auth", "can-i", "-n", "kube-system", "--as=system:node:" + f.Name, "--as-group=system:nodes"}, strings.Fields(args)...)...)
		if !strings.HasPrefix(strings.TrimSpace(out), want) {
			f.t.Errorf("may the node %s? %s", args, out)
		}
	}
}

// otherAuthority returns the certificate of a CA that has signed no certificate.
func (f *configured) otherAuthority() []byte {
	f.t.Helper()
	f.Run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj",
		"/CN=other", "-keyout", f.Disk+"/other.key", "-out", f.Disk+"/other.pem")
	return []byte(f.Run("cat", f.Disk+"/other.pem"))
}

// TestSentConfigurationHarmful checks that no ConfigMap damages a node. Before the trial's deadline the Node must be Ready again without
// taints, and kubectl exec must work in the pods. The pods must not restart.
func TestSentConfigurationHarmful(t *testing.T) {
	f, before := follow(t, "2s")
	for i, c := range []struct{ old, changed, why string }{
		{"", "address: 192.0.2.77\n", "the kubelet API cannot be reached"},
		{"memory.available: 1Mi", "memory.available: 99.99%", "MemoryPressure"},
		{"", "port: 10248\n", "the port is taken"},
	} {
		f.send(c.old, c.changed)
		began := time.Now()
		if i == 0 {
			f.c.Kubectl(t, "annotate", "node", f.Name, "islet.dev/config-map="+f.Name+"-config")
		}
		f.condition(corev1.ConditionFalse, c.why)
		f.c.AwaitNode(t, f.Name, "to be as before", func(n *corev1.Node) bool {
			return cluster.NodeReady(n) && len(n.Spec.Taints) == 0 && !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return strings.HasSuffix(string(c.Type), "Pressure") && c.Status != corev1.ConditionFalse
			})
		})
		for name, p := range before {
			if out := f.c.Kubectl(t, "-n", p.Namespace, "exec", name, "--", "/podtool", "cat", "/etc/hostname"); out != name+"\n" {
				t.Errorf("%s: the host name of %s is %q", c.why, name, out)
			}
		}
		unchanged(t, f.c, before)
		took := time.Since(began)
		t.Logf("%s: %v", c.why, took)
		if took > 50*time.Second { // the deadline is 25 s, and two agents start
			t.Errorf("%s: the trial took %v", c.why, took)
		}
	}
}

// TestSentConfigurationDisturbed checks that the last known good configuration does not change when the agent is killed or the link is cut
// during a trial. The trial must start again when the node is healthy.
func TestSentConfigurationDisturbed(t *testing.T) {
	f, before := follow(t, "12s")
	f.send("", "maxPods: 37\n")
	f.c.Kubectl(t, "annotate", "node", f.Name, "islet.dev/config-map="+f.Name+"-config")
	f.onTrial()
	f.Kill()
	f.Start()
	f.good("maxPods: 37")
	unchanged(t, f.c, before)
	if s, _ := f.shows(); len(s.History) < 2 || !strings.Contains(s.History[0].Why, "killed") {
		t.Errorf("history: %+v", s.History)
	}

	f.send("", "maxPods: 38\n")
	f.onTrial()
	f.Cut(t)
	f.Await("the trial to end", func() bool {
		s, ok := f.shows()
		return ok && !s.Trying && strings.Contains(s.Active.Kubelet, "maxPods: 37") &&
			strings.Contains(s.History[len(s.History)-1].Why, "API server cannot be reached")
	})
	for name := range before {
		if out := inside(f.Node, before[name].Namespace, name, "cat", "/etc/hostname"); out != name+"\n" {
			t.Errorf("the host name of %s is %q", name, out)
		}
	}
	f.Restore(t)
	f.good("maxPods: 38")
	f.condition(corev1.ConditionTrue, "using configuration ")
	unchanged(t, f.c, before)
}
