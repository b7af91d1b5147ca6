package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestNodeConfiguration follows packaging/kustomize/README.md: it copies the kustomization node-configuration, writes the fields of the
// node into kubelet.yaml, removes edge.yaml from the ConfigMap, applies it and annotates the node. The API server accepts and keeps each
// field of the shipped kustomization and of the copy. The node uses the configuration, and nodes get no other permission.
func TestNodeConfiguration(t *testing.T) {
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	n.Write("edge.yaml", "apiVersion: islet.dev/v1beta1\nkind: EdgeConfiguration\ncniConfDir: "+n.Disk+
		"/cni\nconfiguration: {healthyFor: 2s, deadline: 25s}\n")
	n.Join()
	shipped := filepath.Join(machine.Root(t), "packaging/kustomize/node-configuration")
	c.Kubectl(t, "apply", "-k", shipped, "--validate=strict", "--dry-run=server")

	here := t.TempDir()
	if err := os.CopyFS(here, os.DirFS(shipped)); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(here, "kustomization.yaml")
	text, err := os.ReadFile(list)
	if err != nil || !strings.Contains(string(text), "files: [edge=edge.yaml, kubelet=kubelet.yaml]") {
		t.Fatalf("%v in %s", err, text)
	}
	only := strings.Replace(string(text), "edge=edge.yaml, ", "", 1)
	if err := os.WriteFile(list, []byte(only), 0o644); err != nil {
		t.Fatal(err)
	}
	own := n.Run("cat", n.Disk+"/kubelet.yaml") + "\nmaxPods: 41\n"
	if err := os.WriteFile(filepath.Join(here, "kubelet.yaml"), []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	applyKustomization(t, c, here, 3)
	checkAccess(t, c, n.Name)

	c.Kubectl(t, "annotate", "node", n.Name, "islet.dev/config-map=islet-edge")
	c.AwaitNode(t, n.Name, "to use the configuration", func(n *corev1.Node) bool {
		return n.Status.Capacity.Pods().Value() == 41 && nodeCondition(n, "KubeletConfigOk").Status == corev1.ConditionTrue
	})
	c.Kubectl(t, "annotate", "node", n.Name, "islet.dev/config-map-")
	c.AwaitNode(t, n.Name, "to return to its files", func(n *corev1.Node) bool { return n.Status.Capacity.Pods().Value() == 110 })
}

// checkAccess asks the API server for the permissions of a node and of others, after node-configuration was applied.
func checkAccess(t *testing.T, c *cluster.Cluster, node string) {
	t.Helper()
	for _, x := range []struct {
		node                            bool
		verb, resource, namespace, name string
		want                            bool
	}{
		{true, "get", "configmaps", "kube-system", "islet-edge", true},
		{true, "watch", "configmaps", "kube-system", "islet-edge", true},
		{true, "list", "configmaps", "kube-system", "islet-edge", false},
		{true, "update", "configmaps", "kube-system", "islet-edge", false},
		{true, "patch", "configmaps", "kube-system", "islet-edge", false},
		{true, "delete", "configmaps", "kube-system", "islet-edge", false},
		{true, "create", "configmaps", "kube-system", "", false},
		{true, "get", "configmaps", "kube-system", "kube-proxy", false},
		{true, "get", "configmaps", "kube-system", "", false},
		{true, "watch", "configmaps", "kube-system", "", false},
		{true, "get", "configmaps", "default", "islet-edge", false},
		{true, "get", "secrets", "kube-system", "islet-edge", false},
		{false, "get", "configmaps", "kube-system", "islet-edge", false},
		{false, "watch", "configmaps", "kube-system", "islet-edge", false},
	} {
		who := authorizationv1.SubjectAccessReviewSpec{User: "system:node:" + node,
			Groups: []string{"system:nodes", "system:authenticated"}}
		if !x.node {
			who = authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:default:default",
				Groups: []string{"system:serviceaccounts", "system:authenticated"}}
		}
		who.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: x.verb, Resource: x.resource, Version: "v1",
			Namespace: x.namespace, Name: x.name}
		r, err := c.Admin().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: who},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Status.Allowed != x.want {
			t.Errorf("%s: %s %s %s/%s: %v, %s", who.User, x.verb, x.resource, x.namespace, x.name, r.Status.Allowed, r.Status.Reason)
		}
	}
}

// TestMonitoringKustomization builds the kustomization monitoring. The API server accepts the ConfigMap of the dashboard. It does not know
// the kinds of the Prometheus operator: the rules are those that TestPrometheus evaluates (TestKustomize in packaging), and the
// ServiceMonitor was not tried.
func TestMonitoringKustomization(t *testing.T) {
	t.Parallel()
	c := start(t)
	ns := c.Namespace(t)
	built := c.Kubectl(t, "kustomize", filepath.Join(machine.Root(t), "packaging/kustomize/monitoring"))
	var kinds []string
	for _, text := range strings.Split(built, "\n---\n") {
		var object metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, object.APIVersion+" "+object.Kind)
		if object.Namespace != "monitoring" {
			t.Errorf("%s %s is in the namespace %q", object.Kind, object.Name, object.Namespace)
		}
		if object.APIVersion != "v1" {
			continue
		}
		text = strings.Replace(text, "namespace: monitoring", "namespace: "+ns, 1)
		if out, err := c.TryKubectl(text, "apply", "--validate=strict", "--dry-run=server", "-f", "-"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	slices.Sort(kinds)
	want := []string{"monitoring.coreos.com/v1 PrometheusRule", "monitoring.coreos.com/v1 ServiceMonitor", "v1 ConfigMap"}
	if !slices.Equal(kinds, want) {
		t.Errorf("%q, want %q", kinds, want)
	}
}
