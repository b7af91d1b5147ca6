package figures

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/islet-edge/islet/agent/device/counts"
	"github.com/islet-edge/islet/agent/engine/operations"
	"github.com/islet-edge/islet/metrics/exposition"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const docs = "../../../docs/metrics.md"

// This list contains the metrics of a kubelet that islet does not have, and the reasons. Each expression matches a whole name.
var absent = []struct{ names, why string }{
	{`container_cpu_load_average_10s|container_cpu_load_d_average_10s|container_tasks_state`, "a kubelet serves zeros, because it does not enable the collectors of these metrics"},
	{`container_health_state`, "health checks of Docker; a kubelet serves -1 for each container"},
	{`container_fs_io_cost_.*`, "figures of the iocost controller of cgroups, which islet does not configure"},
	{`machine_cpu_books|machine_cpu_drawers|machine_dimm_.*|machine_nvm_.*`, "figures of mainframes and of servers' memory modules; a kubelet on other machines serves zeros"},

	{`kubelet_volume_metric_collection_duration_seconds`, "csi_operations_seconds with method_name /csi.v1.Node/NodeGetVolumeStats has the time of CSI drivers; other volumes are not counted"},
	{`volume_manager_selinux_.*_warnings_total`, "a kubelet counts them only for volumes that it does not mount with an SELinux label, because their pods' labels would conflict"},
	{`volume_operation_total_seconds|.*reconstruct_volume_operations.*|force_cleaned_failed_volume_.*`, "islet has no loop that compares desired with mounted volumes; see storage_operation_duration_seconds"},
	{`kubelet_container_log_filesystem_used_bytes`, "the Summary API has the sizes of logs; each scrape of /metrics would measure all disks again"},
	{`kubelet_resource_manager_.*`, "they belong to the alpha feature PodLevelResourceManagers, which islet does not have"},
	{`csi_node_storage_health_status|dra_node_(un)?prepare_skips_total`, "they belong to the alpha features CSIVolumeHealth and DRAOptionalNodeOperations, which islet does not have"},
	{`kubelet_run_podsandbox_.*`, "see kubelet_runtime_operations_* with operation_type run_podsandbox"},

	{`kubelet_imagemanager_.*|kubelet_image_manager_.*`, "records of pulls are rows of the database, not files with a cache"},
	{`kubelet_pleg_discard_events|kubelet_evented_pleg_.*|kubelet_pleg_pod_relist_duration_seconds`, "islet receives events of the runtime without a connection, and without a channel that could drop them"},
	{`kubelet_first_network_pod_start_sli_duration_seconds`, "internal to upstream's tests"},
	{`kubelet_pod_worker_start_duration_seconds|kubelet_pod_status_sync_duration_seconds`, "workers do not wait for a sync, and the outbox sends a status when the link is up"},
	{`kubelet_orphan.*`, "each pod's own end removes its remains; no separate loop counts them"},
	{`kubelet_started_host_process_containers_.*`, "they are for Windows"},
	{`kubelet_cri_losing_support|kubelet_metrics_provider|version_info`, "they are for changes between versions of the kubelet"},
	{`rest_client_.*`, "they belong to client-go's client, rate limiter and exec plugins; islet counts requests in rest_client_requests_total and rest_client_request_duration_seconds"},
	{`workqueue_.*|informer_.*|leader_election_.*|running_managed_controllers|.*registered_metrics_total|hidden_metrics_total|disabled_metrics_total|cardinality_enforcement_.*`, "they belong to libraries of Kubernetes' components, which islet does not use"},
}

// ownNames contains the metrics that differ from upstream's. The value describes the difference.
var ownNames = map[string]string{
	"container_memory_events_*, container_memory_pg*, container_memory_workingset_refault_*, container_memory_file_*": "only with cgroup v2. With v1 a kubelet serves zeros",
	"container_network_*":          "belongs to the pod's cgroup, because pods have no sandbox container: the label name is the sandbox's ID, and image is empty. Pods on the host's network have no such metrics. The machine's figures (id=\"/\") do not include the host's ends of pods' veths (isl* with 12 digits) and, as in cAdvisor, veth*, docker* and nerdctl*",
	"container_oom_events_total":   "counts processes that the kernel killed because memory ran out, at any limit. With v1 the kernel counts them in the process's cgroup only, with v2 also in all cgroups above it except the root. When the container's cgroup is removed, its figure ends. With v2 the pod's cgroup still has it; with v1 use kube_pod_container_status_last_terminated_reason of kube-state-metrics. A kubelet counts from the kernel's log, in the cgroup that reached its limit",
	"container_memory_failcnt":     "with v2 a failure is also counted in all cgroups above. With v1 it is counted only in the cgroup that reached its limit, which is the pod's if the pod has one container. With v1 failures at the limit of memory plus swap are not counted",
	"container_fs_*":               "only the machine (id=\"/\") has sectors, times and merges",
	"help":                         "the help texts differ",
	"kubelet_memory_qos_*":         "exist only on cgroup v2 and with memoryReservationPolicy: TieredReservation. A kubelet serves zeros without it",
	"node memory":                  "the working set in Summary and in node_memory_working_set_bytes is MemTotal less MemAvailable: it includes the kernel's own memory and excludes everything that the kernel can give back. A kubelet's value is the value of the root cgroup, container_memory_working_set_bytes{id=\"/\"}. Used memory includes the page cache, as a kubelet's",
	"kubelet_node_startup_*":       "exist only if this agent has created its Node. Without that a kubelet serves zeros. The figures do not depend on the wall clock",
	"kubelet_working_pods":         "a pod that was removed from its file and added again counts as an orphan until its former containers have ended; a pod that was refused counts as terminated. islet does not end a pod that only the runtime has before all sources have listed their pods, but counts it as terminating",
	"volume_manager_total_volumes": "islet has no two lists of volumes: the metric counts the volumes of pods and what is set up of them. A volume whose claim is not bound is in neither state, as with a kubelet",
}

// This list contains the metrics that a kubelet does not have, or no longer has, and describes them.
var beyond = []struct{ name, kind, labels, what string }{
	{"islet_build_info", "gauge", "version", "the version"},
	{"islet_events_dropped_total", "counter", "", "number of events that were dropped before they were sent to the API server"},
	{"islet_system_oom_kills_total", "counter", "", "processes that the kernel killed because the machine had no memory left"},
	{"islet_network_repairs_total", "counter", "item", "items of the built-in pod network (table, bridge, port, address, route, sysctl, firewall) that were repaired after another program removed or changed them"},
	{"islet_flash_written_bytes_total", "counter", "cause", "bytes that islet and its pods wrote to disks, also before restarts, by cause: database, images, logs and pods"},
	{"islet_flash_device_written_bytes_total", "counter", "", "bytes that all processes wrote to the disk of the state directory, also before restarts"},
	{"islet_flash_budget_bytes", "gauge", "", "the budget of bytes per day; it is 0 if there is no budget"},
	{"islet_configuration_trials", "gauge", "outcome", "trials of configurations among the last twenty trials, by outcome: accepted, failed or interrupted. Like kubelet_node_config_*, it exists only on a node that got a configuration. It is not a counter, because old trials leave it: alerts use islet_configuration_result"},
	{"islet_configuration_result", "gauge", "outcome", "the time at which a configuration was last accepted or failed, in seconds since the epoch, by outcome: accepted or failed. Only the series of the last outcome exists. Interrupted trials do not change it"},
	{"islet_update_trials", "gauge", "outcome", "trials of other versions of islet among the last twenty trials, by outcome: accepted, failed or interrupted. A self-test that fails before a trial counts too: as failed if the node then rejects the version, otherwise as interrupted. The node does not reject a version after the first crash or timeout of its self-test, or if a command such as `islet update` has asked for the version. It exists only on a node that has tried a version. It is not a counter, because old trials leave it: alerts use islet_update_result"},
	{"islet_update_result", "gauge", "outcome", "the time at which a version was last accepted or failed, in seconds since the epoch, by outcome: accepted or failed. Only the series of the last outcome exists. Interrupted trials do not change it. Like islet_update_trials, it exists only on a node that has tried a version"},
	{"islet_update_rollout", "gauge", "ring,state,version", "what the node does with the version of the index that it follows: due, waiting, paused, installed, refused or outside. The value is always 1. It exists only on a node that has read an index (update.index)"},
	{"islet_bundle_info", "gauge", "name,state", "the numbers of the bundles that the node keeps, by state: current, trial or previous. Like islet_bundle_result, it exists only on a node that had a bundle"},
	{"islet_bundle_result", "gauge", "name,result", "the time when the last bundle ended, in seconds since the epoch, by result: kept, failed or reverted"},
	{"kubelet_node_config_assigned", "gauge", "node_config_kubelet_key,node_config_resource_version,node_config_source,node_config_uid", "the configuration that was sent to the node, as in a kubelet before 1.24"},
	{"kubelet_node_config_active", "gauge", "node_config_kubelet_key,node_config_resource_version,node_config_source,node_config_uid", "the configuration in use"},
	{"kubelet_node_config_last_known_good", "gauge", "node_config_kubelet_key,node_config_resource_version,node_config_source,node_config_uid", "the configuration to which the node returns after a failure"},
	{"kubelet_node_config_error", "gauge", "", "1 if the configuration that was sent has failed"},
}

type upstreamMetric struct{ page, name, kind, stability, labels string }

// typeOf returns the type of the metric on the page. A metric that upstream lists as custom has a separate collector.
func (u upstreamMetric) typeOf() string {
	switch {
	case u.kind != "custom":
		return u.kind
	case strings.HasSuffix(u.name, "_total"):
		return "counter"
	}
	return "gauge"
}

func upstream(t *testing.T) (out []upstreamMetric) {
	t.Helper()
	f, err := os.Open("testdata/upstream.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		w := append(strings.Split(in.Text(), " "), "")
		out = append(out, upstreamMetric{w[0], w[1], w[2], w[3], w[4]})
	}
	return out
}

// This helper returns the metrics whose types and labels this test knows. The key consists of page and name.
func described(t *testing.T) map[string]upstreamMetric {
	t.Helper()
	out := map[string]upstreamMetric{}
	expression := regexp.MustCompile(`fqName: "(\w+)", help: "(.*)", constLabels: .*variableLabels: \{([^}]*)\}`)
	none := func() (map[string]int, int) { return nil, 0 }
	all := New(operations.New(), true, time.Now()).Collectors(noPods{}, noPods{})
	for _, c := range append(all, counts.NewPlugins().Collectors(none)...) {
		kind := ""
		switch c.(type) {
		case *prometheus.CounterVec, prometheus.Counter, Restarted:
			kind = "counter"
		case *prometheus.HistogramVec, prometheus.Histogram:
			kind = "histogram"
		case *prometheus.GaugeVec, prometheus.Gauge, Resizing, Working, counts.Claims:
			kind = "gauge"
		}
		if g, ok := c.(prometheus.Gauge); ok && kind == "counter" { // a Gauge has the methods of a Counter too
			_, kind = g, "gauge"
		}
		all := make(chan *prometheus.Desc, 10)
		c.Describe(all)
		close(all)
		for d := range all {
			m := expression.FindStringSubmatch(d.String())
			if m == nil || m[2] == "" {
				t.Fatalf("%s has no help", d)
			}
			labels := strings.Split(m[3], ",")
			slices.Sort(labels)
			out["/metrics "+m[1]] = upstreamMetric{"/metrics", m[1], kind, "", strings.Join(labels, ",")}
		}
	}
	for _, d := range exposition.Families() {
		slices.Sort(d.Labels)
		kind := map[exposition.Kind]string{exposition.Gauge: "gauge", exposition.Counter: "counter"}[d.Kind]
		out["/metrics/cadvisor "+d.Name] = upstreamMetric{"/metrics/cadvisor", d.Name, kind, "", strings.Join(d.Labels, ",")}
	}
	return out
}

// TestUpstream checks each metric of a kubelet. Either islet serves the metric with the same type and labels, or the list absent contains
// it. docs/metrics.md must be current.
func TestUpstream(t *testing.T) {
	known, used, missing := described(t), map[int]bool{}, map[string][]string{}
	var served []upstreamMetric
	source := source(t)
	for _, u := range upstream(t) {
		why := -1
		for i, a := range absent {
			if regexp.MustCompile("^(" + a.names + ")$").MatchString(u.name) {
				why = i
				break
			}
		}
		have, ok := known[u.page+" "+u.name]
		switch {
		case ok:
			if have.kind != u.typeOf() || have.labels != u.labels {
				t.Errorf("%s is a %s of %q, upstream a %s of %q", u.name, have.kind, have.labels, u.kind, u.labels)
			}
		case strings.Contains(source, `"`+u.name+`"`): // another package counts this metric
		case why >= 0:
			used[why] = true
			missing[absent[why].why] = append(missing[absent[why].why], u.name)
			continue
		default:
			t.Errorf("%s of %s is neither served nor listed as absent", u.name, u.page)
			continue
		}
		served = append(served, u)
	}
	for i, a := range absent {
		if !used[i] {
			t.Errorf("%q matches no absent metric", a.names)
		}
	}
	text := document(served, missing)
	if *update {
		if err := os.WriteFile(docs, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(docs); err != nil || string(have) != text {
		t.Errorf("docs/metrics.md is stale (%v): go test ./agent/pod/figures -run TestUpstream -update", err)
	}
}

// source returns the program's string literals that may be metric names. Tests are excluded.
func source(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("grep", "-rhE", `"[a-z]+_[a-z_]+"`, "--include=*.go", "--exclude=*_test.go", "../..", "../../../metrics",
		"../../../edge").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func document(served []upstreamMetric, missing map[string][]string) string {
	var b strings.Builder
	b.WriteString(`# Metrics

Ports, paths, names, types and labels are the same as a kubelet's, so that Prometheus, metrics-server, rules and dashboards for a kubelet work unchanged. This page is generated by ` + "`" + `go test ./agent/pod/figures -run TestUpstream -update` + "`" + ` from the names in the modules of Kubernetes and cAdvisor and from the metrics that islet serves.

| Page | |
|---|---|
| ` + "`" + `/metrics` + "`" + ` | figures of the node |
| ` + "`" + `/metrics/cadvisor` + "`" + ` | containers, pods and the machine |
| ` + "`" + `/metrics/resource` + "`" + ` | CPU and memory, for metrics-server |
| ` + "`" + `/metrics/probes` + "`" + ` | results of probes |
| ` + "`" + `/metrics/slis` + "`" + ` | health checks as indicators |
| ` + "`" + `/stats/summary` + "`" + ` | the complete Summary API; accepts ` + "`" + `only_cpu_and_memory=true` + "`" +
		`, and POST. Its system containers are ` + "`" + `kubelet` + "`" + ` and ` + "`" + `runtime` + "`" +
		` (the agent's cgroup unless that is the root), ` + "`" + `pods` + "`" + `, and with ` + "`" + `systemCgroups` + "`" + ` ` + "`" +
		`misc` + "`" + ` |

**What a scrape costs.** islet measures only during a scrape, and scrapes within a second share one measurement. If the next scrape comes within two minutes, islet reads only cgroups whose CPU time or memory has changed. It reads all others every two to four minutes. Therefore a limit that another program writes to a cgroup may appear only after those minutes; a limit that the node itself changes
appears at once. Pages are compressed for clients that accept gzip.

**On the node**, ` + "`" + `islet top node` + "`" +
		` also shows temperatures, frequency, under-voltage and throttling of the board. With ` + "`" + `-o wide` + "`" +
		` it shows the total traffic of all hardware interfaces; the Summary API reports only one, eth0 or the first one. ` + "`" +
		`islet top -o wide` + "`" +
		` shows, for pods and containers, the share of the last ten seconds in which a process waited for CPU, memory or disks (cgroup v2). It also shows the bytes
per second that they read from and write to disks. Each byte is counted once; with cgroup v1 the bytes that the kernel writes later are not counted.

## What differs

`)
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range ownNames {
			if !yield(k) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "- %s: %s.\n", k, ownNames[k])
	}
	b.WriteString(`
## Rules made for a kubelet

` + "`" + `sudo make test-prometheus` + "`" +
		` tests a node without a cluster and a node of a cluster with a real Prometheus (the scraper, storage and rule engine of its Go module). It evaluates the expressions of the rules and dashboards of kubernetes-mixin and kube-prometheus that use a kubelet's metrics (` + "`" + `test/prometheus/testdata/rules.yaml` + "`" + `, written for islet, with the original names). No alert is active on a healthy node. A unit test compares the names and labels of all metrics that kubernetes-mixin takes from a kubelet with the table [below](#served). The scrape uses
the token of a service account that may get ` + "`" + `nodes/metrics` + "`" + ` only.

| Without data | On which node | Why |
|---|---|---|
| kubelet_node_config_error | all, unless the node was sent a configuration | a kubelet since 1.24 has none |
| storage_operation_errors_total | all | a kubelet no longer has it; ` + "`" +
		`storage_operation_duration_seconds_count{status!="success"}` + "`" + ` counts them |
| KubeletClientCertificateExpiration, KubeletClientCertificateRenewalErrors, KubeletServerCertificateExpiration, KubeletServerCertificateRenewalErrors, KubeClientErrors, the dashboards' requests to the API server | without a cluster | there is no API server |
| KubePersistentVolumeFillingUp, KubePersistentVolumeInodesFillingUp | without a cluster | a claim is a directory without its own file system |
| the dashboards' errors of operations | without a cluster | the series exist only after the first event, as with a kubelet |
| the dashboards' operations of volumes | without a cluster | volumes that are created and removed with a pod have none |
| KubeletPlegDurationHigh | all | has a value only if containers were listed within the last five minutes, because events report changes |

The test does not evaluate alerts and recorded figures that use only metrics of kube-state-metrics, the control plane or node-exporter: KubePod*, KubeContainer*, KubeDeployment*, KubeStatefulSet*, KubeDaemonSet*, KubeJob*, KubeHpa*, KubePdb*, Kube*Overcommit, KubeQuota*, KubeNodeNotReady, KubeNodePressure, KubeNodeReadinessFlapping, KubeNodeUnreachable, KubeletTooManyPods, KubePersistentVolumeErrors, KubeAPI*,
KubeAggregatedAPI*, KubeClientCertificateExpiration, KubeSchedulerDown, KubeControllerManagerDown, KubeProxyDown.

## metrics-server

` + "`" + `sudo make test-metrics-server` + "`" +
		` runs metrics-server 0.9 as a pod of a node, from its own manifests, with a real control plane. ` + "`" + `kubectl top nodes` + "`" +
		` and ` + "`" + `kubectl top pods` + "`" +
		` work, and a HorizontalPodAutoscaler scales a Deployment by CPU. Two things differ from the manifests: the image, and ` + "`" +
		`--kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt` + "`" + `, because the node has
` + "`" + `serverTLSBootstrap: true` + "`" + `. ` + "`" + `--kubelet-insecure-tls` + "`" +
		` is needed only where the serving certificate is self-signed, as with a kubelet.
`)
	b.WriteString("\n## Served\n\n| page | name | type | labels | stability |\n|---|---|---|---|---|\n")
	slices.SortFunc(served, func(a, b upstreamMetric) int { return cmp.Or(cmp.Compare(a.page, b.page), cmp.Compare(a.name, b.name)) })
	for _, u := range served {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", u.page, u.name, u.typeOf(), strings.ReplaceAll(u.labels, ",", ", "), u.stability)
	}
	b.WriteString("\n## Beyond a kubelet's\n\nA test compares the metrics of a node with this table and the one above. `/metrics` also has metrics of the Go runtime and the process (`go_*`, `process_*`).\n\n| page | name | type | labels | meaning |\n|---|---|---|---|---|\n")
	for _, o := range beyond {
		fmt.Fprintf(&b, "| /metrics | `%s` | %s | %s | %s |\n", o.name, o.kind, strings.ReplaceAll(o.labels, ",", ", "), o.what)
	}
	b.WriteString("\n## Left out\n\nislet does not serve a metric if it has nothing to count. Otherwise an alert could interpret the zero as a good value.\n\n| names | why |\n|---|---|\n")
	for _, a := range absent {
		if names := missing[a.why]; len(names) > 0 {
			slices.Sort(names)
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(slices.Compact(names), "`, `"), a.why)
			delete(missing, a.why)
		}
	}
	return b.String()
}
