package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// overlay contains an administrator's changes to metrics-server's manifests. They set the image and the node. They also make metrics-server
// verify the nodes' certificates with the cluster's CA.
const overlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
images: [{name: gcr.io/k8s-staging-metrics-server/metrics-server, newName: localhost/metrics-server, newTag: test}]
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt}
    - {op: add, path: /spec/template/spec/nodeSelector/kubernetes.io~1hostname, value: %s}
`

// burns is a Deployment whose pods use their whole CPU limit, and its HorizontalPodAutoscaler.
const burns = `apiVersion: apps/v1
kind: Deployment
metadata: {name: burns, namespace: %[1]s}
spec:
  selector: {matchLabels: {app: burns}}
  template:
    metadata: {labels: {app: burns}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: c, image: %[2]s, imagePullPolicy: Never, args: [burn], resources: {requests: {cpu: 50m}, limits: {cpu: 100m}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: burns, namespace: %[1]s}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: burns}
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
`

// TestMetricsServer checks that metrics-server with its own manifests and permissions scrapes a node over verified TLS. kubectl top must
// show the usage of pods, and a Deployment must be scaled by CPU usage.
func TestMetricsServer(t *testing.T) {
	dir := os.Getenv("ISLET_METRICS_SERVER")
	if dir == "" {
		t.Skip("make test-metrics-server builds what this needs")
	}
	c := start(t)
	n := c.Node(t, "")
	image, err := os.ReadFile(filepath.Join(dir, "metrics-server.tar"))
	if err != nil {
		t.Fatal(err)
	}
	n.Write("state/images/metrics-server.tar", string(image))
	n.Join("--rotate-server-certificates")
	c.ApproveServing(t, n.Name)
	ns := c.Namespace(t)
	serveServices(t, c, n)
	begun := time.Now()
	step := func(what string) { t.Logf("%4.0fs %s", time.Since(begun).Seconds(), what) }
	c.Apply(t, pod(ns, "eats", "", "", "eat", "64")+pod(ns, "idle", "", "", "sleep")+fmt.Sprintf(burns, ns, machine.Image))
	c.AwaitReady(t, ns, "eats", "idle")
	installMetricsServer(t, c, n, dir)
	step("metrics-server has figures")

	var used map[string]corev1.ResourceList
	n.Await("figures of all pods", func() bool {
		used = figuresOf(t, c, "namespaces/"+ns+"/pods")
		return len(used) >= 3 && burnt(used) > 50
	})
	step("of all pods")
	eats, idle := used["eats"], used["idle"]
	if m := eats.Memory().Value() >> 20; m < 64 || m > 80 {
		t.Errorf("the pod that allocates 64 MiB uses %d MiB", m)
	}
	if m, cpu := idle.Memory().Value()>>20, idle.Cpu().MilliValue(); m > 20 || cpu > 20 {
		t.Errorf("the sleeping pod uses %d MiB and %dm", m, cpu)
	}
	if cpu := burnt(used); cpu > 110 {
		t.Errorf("the pod with a limit of 100m uses %dm", cpu)
	}
	var sum stats.Summary
	if err := json.Unmarshal([]byte(kubectl{Cluster: c, ns: ns}.raw(t, n, "stats/summary")), &sum); err != nil {
		t.Fatal(err)
	}
	node := figuresOf(t, c, "nodes")[n.Name]
	if is, should := node.Memory().Value(), int64(*sum.Node.Memory.WorkingSetBytes); is < should/2 || is > should*2 {
		t.Errorf("metrics-server shows %d bytes of memory for the node, and the summary %d", is, should)
	}
	for _, args := range [][]string{{"top", "nodes"}, {"top", "pods", "-n", ns, "--containers"}} {
		out := c.Kubectl(t, args...)
		t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
		if !strings.Contains(out, n.Name) && !strings.Contains(out, "eats") || strings.Contains(out, "unknown") {
			t.Errorf("the output of kubectl %s is\n%s", strings.Join(args, " "), out)
		}
	}
	c.Kubectl(t, "-n", ns, "wait", "--for=jsonpath={.status.readyReplicas}=3", "deployment/burns", "--timeout=300s")
	step("scaled up")
	t.Logf("\n%s", c.Kubectl(t, "-n", ns, "get", "hpa"))
}

// burnt returns the CPU usage of the Deployment's first pod in millicores.
func burnt(used map[string]corev1.ResourceList) int64 {
	for name, l := range used {
		if strings.HasPrefix(name, "burns-") {
			return l.Cpu().MilliValue()
		}
	}
	return 0
}

// serveServices replaces kube-proxy for the two required Services. Pods of the node reach the API server through its Service, and the API
// server reaches metrics-server through the Service of metrics-server.
func serveServices(t *testing.T, c *cluster.Cluster, n *cluster.Node) {
	t.Helper()
	n.Write("services.nft",
		"table ip services {\n chain pre { type nat hook prerouting priority -100; ip daddr 10.96.0.1 tcp dport 443 dnat to 10.97.0.1:6443; }\n}\n")
	n.Run("nft", "-f", n.Disk+"/services.nft")
	node := c.AwaitNode(t, n.Name, "to have a podCIDR", func(n *corev1.Node) bool { return n.Spec.PodCIDR != "" })
	// The second route is for packets to the addresses of Services. nftables replaces these addresses by those of the servers.
	for _, route := range [][]string{{node.Spec.PodCIDR, "via", n.Addr}, {"10.96.0.0/16", "dev", "lan0"}} {
		if out, err := c.RunAsAdmin("KUBECONFIG", append([]string{"ip", "route", "replace"}, route...)...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// installMetricsServer applies metrics-server's manifests and waits until its API is available.
func installMetricsServer(t *testing.T, c *cluster.Cluster, n *cluster.Node, dir string) {
	t.Helper()
	here := t.TempDir()
	base, err := filepath.Rel(here, filepath.Join(dir, "manifests"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(here, "kustomization.yaml"), fmt.Appendf(nil, overlay, base, n.Name), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Kubectl(t, "delete", "-k", here, "--wait=false") })
	c.Kubectl(t, "apply", "-k", here)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := c.TryKubectl("", "-n", "kube-system", "logs", "deployment/metrics-server", "--tail=40")
			t.Logf("the log of metrics-server is\n%s\n%s", out, c.Describe("-n", "kube-system", "pods", "-l", "k8s-app=metrics-server"))
		}
	})
	c.Kubectl(t, "-n", "kube-system", "rollout", "status", "deployment/metrics-server", "--timeout=180s")
	pods, err := c.Admin().CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=metrics-server"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%v: %d pods", err, len(pods.Items))
	}
	svc, err := c.Admin().CoreV1().Services("kube-system").Get(t.Context(), "metrics-server", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules := fmt.Sprintf("table ip services {\n chain out { type nat hook output priority -100; ip daddr %s tcp dport 443 dnat to %s:10250; }\n}\n", svc.Spec.ClusterIP, pods.Items[0].Status.PodIP)
	cmd := c.AdminCommand("KUBECONFIG", "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.Kubectl(t, "wait", "--for=condition=Available", "apiservice/v1beta1.metrics.k8s.io", "--timeout=120s")
}

// figuresOf returns the usage of nodes or pods from metrics.k8s.io, by name. It is empty while metrics-server has no data.
func figuresOf(t *testing.T, c *cluster.Cluster, what string) map[string]corev1.ResourceList {
	t.Helper()
	b, err := c.Admin().CoreV1().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/"+what).SetHeader("Accept",
		"application/json").DoRaw(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	var list struct {
		Items []struct {
			Metadata   struct{ Name string }
			Usage      corev1.ResourceList
			Containers []struct{ Usage corev1.ResourceList }
		}
	}
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	used := map[string]corev1.ResourceList{}
	for _, i := range list.Items {
		sum := corev1.ResourceList{}
		for _, one := range append([]struct{ Usage corev1.ResourceList }{{i.Usage}}, i.Containers...) {
			for name, q := range one.Usage {
				total := sum[name]
				total.Add(q)
				sum[name] = total
			}
		}
		used[i.Metadata.Name] = sum
	}
	return used
}
