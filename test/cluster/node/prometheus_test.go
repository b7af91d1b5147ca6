package node

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/figures"
	corev1 "k8s.io/api/core/v1"
)

// noData contains the rules that have no result on a node of a cluster, with the reason.
var noData = map[string]string{
	"kubelet: errors of the configuration":  "kubelet_node_config_error is of a node that was sent a configuration; a kubelet has had it up to 1.24",
	"kubelet: errors of storage operations": "storage_operation_errors_total no longer belongs to the kubelet: storage_operation_duration_seconds has the status",
}

// scraper is the service account of a Prometheus with the permission that kube-prometheus grants on nodes.
const scraper = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
rules: [{apiGroups: [""], resources: [nodes/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: NAME}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: NAME}
---
`

// TestPrometheus checks that a real Prometheus with its own token scrapes a node of a cluster. The rules and dashboards for kubelets must
// find their metrics. Some of these metrics need a control plane: certificates, requests to the API server, and volumes of claims. A
// single failure or an old eviction must raise no alert.
func TestPrometheus(t *testing.T) {
	tool := os.Getenv("ISLET_PROMETHEUS")
	if tool == "" {
		t.Skip("make test-prometheus builds the parts of Prometheus that this needs")
	}
	t.Parallel()
	c := start(t)
	n := c.Node(t, "")
	device := loop(t, t.TempDir(), "disk", 16<<10)
	if out, err := exec.Command("mkfs.ext4", "-q", device).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %v: %s", err, out)
	}
	n.Join("--rotate-server-certificates")
	c.ApproveServing(t, n.Name)
	ns := c.Namespace(t)
	t.Cleanup(func() {
		c.Kubectl(t, "delete", "clusterrolebinding/"+ns, "clusterrole/"+ns, "pv/"+ns+"-fs", "--ignore-not-found", "--wait=false")
	})
	fs := disk{name: "fs", source: "local: {path: " + device + "}", here: true}
	c.Apply(t, strings.ReplaceAll(scraper, "NAME", ns)+fs.manifest(ns, n.Name, "fs")+claim(ns, "fs", ns+"-fs", "Filesystem")+
		pod(ns, "limited", "volumes: [{name: fs, persistentVolumeClaim: {claimName: fs}}]\n", `resources: {limits: {cpu: 500m, memory: 32Mi}}
readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
volumeMounts: [{name: fs, mountPath: /v}]`, "serve", ":8080")+
		pod(ns, "plain", "", "", "sleep")+
		pod(ns, "broken", "", "command: [/none]", "sleep")+
		pod(ns, "filler", "volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]\n", "volumeMounts: [{name: v, mountPath: /v}]", "fill",
			"/v/file", "2"))
	c.AwaitReady(t, ns, "limited", "plain")
	c.AwaitPod(t, ns, "filler", "to be evicted", func(p *corev1.Pod) bool { return p.Status.Reason == "Evicted" })
	c.AwaitPod(t, ns, "broken", "to fail to start", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && (s[0].RestartCount > 0 || s[0].LastTerminationState.Terminated != nil || s[0].State.Terminated != nil)
	})
	n.Write("token", strings.TrimSpace(c.Kubectl(t, "-n", ns, "create", "token", "prometheus")))
	pods := ns + "/limited," + ns + "/plain"
	figures.Scrape(t, n.Machine, tool, "-token", n.Disk+"/token", "-node", n.Name, "-pods", pods).MustPass(t, noData)
}
