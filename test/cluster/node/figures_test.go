package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// raw returns the node's response to a request through the API server.
func (k kubectl) raw(t *testing.T, n *cluster.Node, path string) string {
	t.Helper()
	out, err := k.Raw(t, fmt.Sprintf("/api/v1/nodes/%s/proxy/%s", n.Name, path))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// proxy checks paths of the kubelet API through the API server.
func (k kubectl) proxy(t *testing.T, n *cluster.Node) {
	for path, want := range map[string]string{
		"healthz": "ok", "healthz/ping": "ok", "healthz/log": "ok", "healthz/syncloop": "ok", "healthz?verbose": "[+]syncloop ok",
		"pods": `"name":"web"`, "runningpods/": `"name":"web"`, "configz": `"kubeletconfig"`, "logs/": "<a href=",
		"containerLogs/" + k.ns + "/count/c?tailLines=1": "\n", "metrics/cadvisor": "container_cpu_usage_seconds_total{",
		"metrics/probes": "process_start_time_seconds",
	} {
		if out := k.raw(t, n, path); !strings.Contains(strings.ReplaceAll(out, `": `, `":`), want) {
			t.Errorf("%s: want %q in %.300q", path, want, out)
		}
	}
	root := fmt.Sprintf("/api/v1/nodes/%s/proxy/", n.Name)
	k.want(t, "web\n", "create", "--raw", root+"run/"+k.ns+"/web/c?cmd=/podtool+cat+/etc/hostname", "-f", "/dev/null")
}

// figures checks the metrics and labels that metrics-server, Prometheus, its alerts and its dashboards need from a kubelet.
func (k kubectl) figures(t *testing.T, n *cluster.Node) {
	for path, names := range map[string][]string{
		"metrics": {
			`kubelet_running_pods`, `kubelet_running_containers{container_state="running"}`, `kubelet_node_name{node="` + n.Name + `"}`,
			`kubelet_runtime_operations_total{operation_type="run_podsandbox"}`,
			`kubelet_runtime_operations_duration_seconds_bucket{operation_type="create_container",le="+Inf"}`,
			`kubelet_pod_start_sli_duration_seconds_count`, `kubelet_pod_start_duration_seconds_bucket{le="+Inf"}`,
			`kubelet_pod_worker_duration_seconds_bucket{operation_type="create",le="+Inf"}`,
			`kubelet_started_pods_total`, `kubelet_started_containers_total{container_type="init_container"}`,
			`kubelet_started_containers_errors_total{code="ErrImageNeverPull",container_type="container"}`,
			`kubelet_http_requests_total{long_running="true",method="POST",path="exec",server_type="readwrite"}`,
			`kubelet_certificate_manager_client_ttl_seconds`, `kubernetes_build_info{`, `rest_client_requests_total{code="200",host="10.97.0.1:6443",method="GET"}`,
			`process_cpu_seconds_total`, `process_resident_memory_bytes`, `go_goroutines`,
		},
		"metrics/resource": {
			`node_cpu_usage_seconds_total`, `node_memory_working_set_bytes`,
			`container_cpu_usage_seconds_total{container="c",namespace="` + k.ns + `",pod="web"}`,
			`container_memory_working_set_bytes{container="c",namespace="` + k.ns + `",pod="web"}`,
			`container_start_time_seconds{container="c",namespace="` + k.ns + `",pod="web"}`,
			`pod_cpu_usage_seconds_total{namespace="` + k.ns + `",pod="web"}`, `pod_memory_working_set_bytes{namespace="` + k.ns + `",pod="web"}`,
			`scrape_error 0`,
		},
	} {
		out := k.raw(t, n, path)
		parser := expfmt.NewTextParser(model.LegacyValidation)
		if _, err := parser.TextToMetricFamilies(strings.NewReader(out)); err != nil {
			t.Errorf("%s cannot be parsed: %v", path, err)
		}
		for _, name := range names {
			at := strings.Index(out, "\n"+name)
			if at < 0 || strings.HasPrefix(name, "kubelet_certificate") && strings.Contains(out, name+" +Inf") {
				t.Errorf("%s lacks %s", path, name)
			} else if line, _, _ := strings.Cut(out[at+1:], "\n"); strings.HasSuffix(line, " 0") && !strings.HasSuffix(name, " 0") {
				t.Errorf("%s: %s", path, line)
			}
		}
	}
	var sum stats.Summary
	if err := json.Unmarshal([]byte(k.raw(t, n, "stats/summary")), &sum); err != nil {
		t.Fatal(err)
	}
	if sum.Node.NodeName != n.Name || sum.Node.CPU == nil || sum.Node.CPU.UsageCoreNanoSeconds == nil || sum.Node.Memory == nil ||
		sum.Node.Memory.WorkingSetBytes == nil {
		t.Errorf("the summary of the node is %+v", sum.Node)
	}
	for _, p := range sum.Pods {
		if p.PodRef.Name == "web" && p.PodRef.Namespace == k.ns && len(p.Containers) == 1 &&
			p.Containers[0].Memory.WorkingSetBytes != nil && p.CPU.UsageCoreNanoSeconds != nil {
			return
		}
	}
	t.Errorf("the summary does not contain the pod: %+v", sum.Pods)
}
