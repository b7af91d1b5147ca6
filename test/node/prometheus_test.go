package node

import (
	"os"
	"slices"
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
	"kubelet: storage operations":           "what pods mount that lives and dies with them is not an operation here; volumes of claims have them",
	"kubelet: errors of the configuration":  "kubelet_node_config_error is of a node that was sent a configuration; a kubelet has had it up to 1.24",
	"kubelet: errors of storage operations": "storage_operation_errors_total no longer belongs to the kubelet: storage_operation_duration_seconds has the status",
}

// scrapable contains the fields of a KubeletConfiguration that let a Prometheus without a token scrape the node.
const scrapable = "authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n" + machine.Roomy

// TestPrometheus checks that a real Prometheus scrapes the node. The rules and dashboards of kubernetes-mixin must find their kubelet
// metrics. The rules in noData are exempt.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	tool := os.Getenv("ISLET_PROMETHEUS")
	if tool == "" {
		t.Skip("make test-prometheus builds the parts of Prometheus that this needs")
	}
	m := bootMachine(t)
	m.Write("kubelet.yaml", m.Kubelet(scrapable))
	m.Write("manifests/limited.yaml", strings.Replace(manifest("limited", "", "serve", ":8080"), "    image:",
		"    resources: {limits: {cpu: 500m, memory: 32Mi}}\n    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}\n    volumeMounts: [{name: v, mountPath: /v}]\n    image:", 1)+
		"  volumes: [{name: v, emptyDir: {}}]\n")
	m.Write("manifests/plain.yaml", manifest("plain", "", "sleep"))
	m.StartAgent()
	m.WaitReady("limited-edge", "plain-edge")
	figures.Scrape(t, m, tool, "-pods", "default/limited-edge,default/plain-edge").MustPass(t, noData)
}

// TestPrometheusAlerts checks a node on which the first trial of a version and the first trial of a configuration have failed, before
// Prometheus has scraped it. Their alerts are active, and no others. Then both succeed, and no alert is active.
func TestPrometheusAlerts(t *testing.T) {
	t.Parallel()
	tool := os.Getenv("ISLET_PROMETHEUS")
	if tool == "" {
		t.Skip("make test-prometheus builds the parts of Prometheus that this needs")
	}
	u := bootUpdates(t)
	own := u.m.Kubelet(scrapable)
	u.m.Write("kubelet.yaml", own)
	u.start(quickly, "{keys: ["+u.Public+"]}")
	if out, code := u.m.Try("update", u.brokenVersion("crash")); code != 1 {
		t.Fatalf("a version that crashes: code %d, %s", code, out)
	}
	if out, code := apply(u.m, own+"readOnlyPort: 10248\n", "--consent", "readOnlyPort"); code != 1 {
		t.Fatalf("a configuration that fails: code %d, %s", code, out)
	}
	active := func() []string {
		return figures.Scrape(t, u.m, tool, "-pods", "default/one-edge,default/two-edge").ActiveAlerts(t)
	}
	want := []string{"IsletConfigurationNotUsed", "IsletConfigurationTrialFailed", "IsletUpdateTrialFailed", "IsletUpdatesFail"}
	if got := active(); !slices.Equal(got, want) {
		t.Errorf("after the failures %q are active, want %q", got, want)
	}
	u.m.Islet("update", u.archive("9.1.0", u.BuildVersion("9.1.0")))
	if out, code := apply(u.m, own+"maxPods: 17\n"); code != 0 {
		t.Fatalf("a good configuration: code %d, %s", code, out)
	}
	if got := active(); len(got) > 0 {
		t.Errorf("after the successes %q are active", got)
	}
}
