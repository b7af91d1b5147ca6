package node

import (
	"os"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
)

// noData contains the rules that have no result on a node without a control plane, with the reason.
var noData = map[string]string{
	"KubeletClientCertificateExpiration":    "there is no API server, and so no certificate for it",
	"KubeletClientCertificateRenewalErrors": "the same",
	"KubeClientErrors":                      "the same",
	"kubelet: requests to the API server":   "the same",
	"KubeletServerCertificateExpiration":    "the node's own certificate is none that a cluster signed",
	"KubeletServerCertificateRenewalErrors": "the same",
	"kubelet: errors of operations":         "no operation failed: the same",
	"KubePersistentVolumeFillingUp":         "a claim of a node by itself is a directory, without a size of its own",
	"KubePersistentVolumeInodesFillingUp":   "the same",
	"kubelet: storage operations":           "what pods mount that lives and dies with them is no operation here; volumes of claims have them",
	"kubelet: errors of the configuration":  "kubelet_node_config_error is of a node that was sent a configuration; a kubelet has had it up to 1.24",
	"kubelet: errors of storage operations": "storage_operation_errors_total is no kubelet's any more: storage_operation_duration_seconds has the status",
}

// TestPrometheus checks that a real Prometheus scrapes the node. The rules and dashboards of kubernetes-mixin must find their kubelet
// metrics. The rules in noData are exempt.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	tool := os.Getenv("ISLET_PROMETHEUS")
	if tool == "" {
		t.Skip("make test-prometheus builds the parts of Prometheus that this needs")
	}
	m := bootMachine(t)
	m.Write("kubelet.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupRoot: `+m.Cgroup+`
failSwapOn: false
podLogsDir: `+m.Disk+`/logs
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
`+machine.Roomy)
	m.Write("manifests/limited.yaml", strings.Replace(manifest("limited", "", "serve", ":8080"), "    image:",
		"    resources: {limits: {cpu: 500m, memory: 32Mi}}\n    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}\n    volumeMounts: [{name: v, mountPath: /v}]\n    image:", 1)+
		"  volumes: [{name: v, emptyDir: {}}]\n")
	m.Write("manifests/plain.yaml", manifest("plain", "", "sleep"))
	m.StartAgent()
	m.WaitReady("limited-edge", "plain-edge")
	figures.Scrape(t, m, tool, "-pods", "default/limited-edge,default/plain-edge").MustPass(t, noData)
}
