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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/islet-edge/islet/agent/device/counts"
	"github.com/islet-edge/islet/agent/engine/operations"
	"github.com/islet-edge/islet/metrics/exposition"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const docs = "../../../docs/metrics.md"

// absent says why a name that a kubelet has is left out: what it counts does not exist
// here, or not yet. Each expression matches whole names.
var absent = []struct{ names, why string }{
	{`container_cpu_load_average_10s|container_cpu_load_d_average_10s|container_tasks_state`, "a kubelet serves zeros: it does not turn on what would count them"},
	{`container_health_state`, "Docker's health checks; a kubelet serves -1 of each container"},
	{`container_fs_io_cost_.*`, "of cgroups with the iocost controller, which nothing here configures"},
	{`machine_cpu_books|machine_cpu_drawers|machine_dimm_.*|machine_nvm_.*`, "of mainframes and of servers' memory modules; a kubelet on other machines serves zeros"},

	{`kubelet_volume_metric_collection_duration_seconds`, "csi_operations_seconds with method_name /csi.v1.Node/NodeGetVolumeStats has what CSI drivers take; the rest is not counted"},
	{`volume_manager_selinux_.*`, "volumes are mounted with an SELinux label where Kubernetes wants it, but labels that do not match are errors and not counted"},
	{`volume_operation_total_seconds|volume_manager_.*|.*reconstruct_volume_operations.*|force_cleaned_failed_volume_.*`, "there is no loop here that compares volumes that are wanted with those that are mounted; see storage_operation_duration_seconds"},
	{`kubelet_pod_resources_.*|plugin_manager_total_plugins`, "what is asked of plugins is not counted yet"},
	{`kubelet_admission_rejections_total|kubelet_restarted_pods_total|kubelet_mirror_pods|kubelet_working_pods|kubelet_managed_ephemeral_containers|kubelet_container_log_filesystem_used_bytes|kubelet_node_startup_.*`, "not counted yet"},
	{`kubelet_run_podsandbox_.*`, "see kubelet_runtime_operations_* with operation_type run_podsandbox"},
	{`kubelet_certificate_manager_server_rotation_seconds`, "not counted yet"},

	{`kubelet_imagemanager_.*|kubelet_image_manager_.*`, "records of pulls are rows of the store here, not a cache with files"},
	{`kubelet_pleg_discard_events|kubelet_evented_pleg_.*`, "events of the runtime come without a channel that could drop them, or a connection"},
	{`kubelet_pod_worker_start_duration_seconds|kubelet_pod_status_sync_duration_seconds`, "workers wait for no sync, and the outbox sends a status when the link is up"},
	{`kubelet_orphan.*`, "what is left of pods that are gone is removed by their own end, not by a sweep that counts"},
	{`kubelet_started_host_process_containers_.*`, "of Windows"},
	{`kubelet_cri_losing_support|kubelet_metrics_provider|version_info`, "of a kubelet's own changes between versions"},
	{`rest_client_.*`, "of client-go's own client, rate limiter and exec plugins; requests are in rest_client_requests_total and rest_client_request_duration_seconds"},
	{`workqueue_.*|informer_.*|leader_election_.*|running_managed_controllers|.*registered_metrics_total|hidden_metrics_total|disabled_metrics_total`, "of the libraries of Kubernetes' components, which islet does not have"},
}

// own are names that differ from upstream's in something, and why.
var own = map[string]string{
	"container_network_*":        "belongs to the pod's own cgroup, because pods have no sandbox container: the label name is the sandbox's ID, and image is empty. Pods of the host's network have none. The machine's figures (id=\"/\") leave out the host's ends of pods' veths: isl* with 12 digits, and as upstream veth*, docker* and nerdctl*",
	"container_oom_events_total": "counts processes that the kernel killed for want of memory, at any limit, in the cgroup for which the kernel counts them: with v2 also in all cgroups above except the root, with v1 only in that of the process. The figure ends with the container's cgroup; the pod's cgroup still has it with v2, and none with v1 (kube-state-metrics has kube_pod_container_status_last_terminated_reason). A kubelet counts by the kernel's log, in the cgroup whose limit was met",
	"container_memory_failcnt":   "with v2 a failure also counts in all cgroups above; with v1 in the cgroup whose limit was met, which for the only container of a pod is the pod's. With v1 the limit of memory and swap together does not count",
	"container_fs_*":             "sectors, times and merges are figures of the machine (id=\"/\") only",
	"help":                       "texts are islet's own",
	"node memory":                "the working set in Summary and in node_memory_working_set_bytes is MemTotal less MemAvailable: it includes the kernel's own memory and excludes everything that the kernel can give back. A kubelet's is that of the root cgroup, container_memory_working_set_bytes{id=\"/\"}. Used memory includes the page cache, as a kubelet's",
}

// beyond are names that a kubelet does not have, or has no more, with what they tell.
var beyond = []struct{ name, kind, labels, what string }{
	{"islet_build_info", "gauge", "version", "the version"},
	{"islet_events_dropped_total", "counter", "", "events that were dropped before the API server had them"},
	{"islet_system_oom_kills_total", "counter", "", "processes that the kernel killed as the machine had no memory left"},
	{"islet_network_repairs_total", "counter", "item", "items of the built-in pod network (table, bridge, port, address, route, sysctl, firewall) that were repaired after another program removed or changed them"},
	{"islet_flash_written_bytes_total", "counter", "cause", "bytes that islet and its pods wrote to disks, also before restarts, by cause: database, images, logs, pods"},
	{"islet_flash_device_written_bytes_total", "counter", "", "bytes that any process wrote to the disk of the state directory, also before restarts"},
	{"islet_flash_budget_bytes", "gauge", "", "bytes that may be written a day; 0 if there is no budget"},
	{"islet_configuration_trials", "gauge", "outcome", "trials of configurations among the last twenty, accepted, failed or interrupted; like those of kubelet_node_config of a node that was sent a configuration"},
	{"islet_update_trials", "gauge", "outcome", "trials of other versions of islet among the last twenty of any kind, of a node that tried one"},
	{"kubelet_node_config_assigned", "gauge", "node_config_kubelet_key,node_config_resource_version,node_config_source,node_config_uid", "the configuration that the node was sent, as of a kubelet up to 1.24"},
	{"kubelet_node_config_active", "gauge", "node_config_kubelet_key,node_config_resource_version,node_config_source,node_config_uid", "the one that is in use"},
	{"kubelet_node_config_last_known_good", "gauge", "node_config_kubelet_key,node_config_resource_version,node_config_source,node_config_uid", "the one that it goes back to"},
	{"kubelet_node_config_error", "gauge", "", "1: the one that it was sent failed"},
}

type upstreamMetric struct{ page, name, kind, stability, labels string }

// typeOf is what one is on a page: what upstream lists as custom has a collector of its own.
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

// described are the names whose types and labels are known here.
func described(t *testing.T) map[string]upstreamMetric {
	t.Helper()
	out := map[string]upstreamMetric{}
	expression := regexp.MustCompile(`fqName: "(\w+)", help: "(.*)", constLabels: .*variableLabels: \{([^}]*)\}`)
	none := func() (map[string]int, int) { return nil, 0 }
	for _, c := range append(New(operations.New(), true).Collectors(none), counts.NewPlugins().Collectors(none)...) {
		kind := ""
		switch c.(type) {
		case *prometheus.CounterVec, prometheus.Counter:
			kind = "counter"
		case *prometheus.HistogramVec, prometheus.Histogram:
			kind = "histogram"
		case *prometheus.GaugeVec, prometheus.Gauge, Resizing, counts.Claims:
			kind = "gauge"
		}
		if g, ok := c.(prometheus.Gauge); ok && kind == "counter" { // a Gauge has what a Counter has
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

// TestUpstream: every name that a kubelet has is served with its type and labels, or it is
// said why not; and what is said to be absent is.
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
		case strings.Contains(source, `"`+u.name+`"`): // counted in another room
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
			t.Errorf("nothing that %q names is absent", a.names)
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

// source is the program's own, without tests.
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

The ports, paths, names, types and labels are a kubelet's, so that Prometheus, metrics-server, rules and dashboards made for a kubelet work unchanged. This page is made by ` + "`" + `go test ./agent/pod/figures -run TestUpstream -update` + "`" + ` from the names in Kubernetes' and cAdvisor's own modules and from what islet serves.

| Page | |
|---|---|
| ` + "`" + `/metrics` + "`" + ` | the node's own figures |
| ` + "`" + `/metrics/cadvisor` + "`" + ` | containers, pods and the machine |
| ` + "`" + `/metrics/resource` + "`" + ` | CPU and memory, for metrics-server |
| ` + "`" + `/metrics/probes` + "`" + ` | results of probes |
| ` + "`" + `/metrics/slis` + "`" + ` | health checks as indicators |
| ` + "`" + `/stats/summary` + "`" + ` | the Summary API, complete; takes ` + "`" + `only_cpu_and_memory=true` + "`" +
		`, and POST. Its system containers are ` + "`" + `kubelet` + "`" + ` and ` + "`" + `runtime` + "`" +
		` (the agent's cgroup unless that is the root), ` + "`" + `pods` + "`" + `, and with ` + "`" + `systemCgroups` + "`" + ` ` + "`" +
		`misc` + "`" + ` |

**What a scrape costs.** Nothing is measured unless somebody asks, and pages that are scraped within a second share one measurement. A scraper that comes again within two minutes has only those cgroups read whose CPU time or memory has changed; the others are read as a whole every two to four minutes. A limit that another program writes into a cgroup shows within those minutes, one that the node
changes at once. Pages are compressed for clients that accept gzip.

**On the node**, ` + "`" + `islet top node` + "`" +
		` also shows temperatures, frequency, under-voltage and throttling of the board; with ` + "`" + `-o wide` + "`" +
		` also the traffic of all hardware interfaces together (the Summary API names one: eth0, or else the first). ` + "`" +
		`islet top -o wide` + "`" +
		` shows for pods and containers the share of the last ten seconds in which a process waited for CPU, memory or disks (cgroup v2), and the bytes
per second that they read from and write to disks, each byte once (with cgroup v1 without what the kernel writes later).

## What differs

`)
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range own {
			if !yield(k) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "- %s: %s.\n", k, own[k])
	}
	b.WriteString(`
## Rules made for a kubelet

` + "`" + `sudo make test-prometheus` + "`" +
		` runs a real Prometheus (its Go module: scraping, storage and rule engine) against a node without a cluster and a node of one. It evaluates the expressions that the rules and dashboards of kubernetes-mixin and kube-prometheus take from a kubelet (` + "`" + `test/prometheus/testdata/rules.yaml` + "`" + `, written for islet, under their names). No alert is active on a healthy node. The scrape uses
the token of a service account that may get ` + "`" + `nodes/metrics` + "`" + ` only.

| Without data | On which node | Why |
|---|---|---|
| the dashboards' numbers of volumes (volume_manager_total_volumes) | all | see [left out](#left-out) |
| kubelet_node_config_error | all, unless the node was sent a configuration | a kubelet since 1.24 has none |
| storage_operation_errors_total | all | a kubelet has it no more; ` + "`" +
		`storage_operation_duration_seconds_count{status!="success"}` + "`" + ` counts them |
| KubeletClientCertificateExpiration, KubeletClientCertificateRenewalErrors, KubeletServerCertificateExpiration, KubeletServerCertificateRenewalErrors, KubeClientErrors, the dashboards' requests to the API server | without a cluster | there is no API server |
| KubePersistentVolumeFillingUp, KubePersistentVolumeInodesFillingUp | without a cluster | a claim is a directory without a size of its own |
| KubeNodeEviction, and the dashboards' errors of operations | without a cluster | there are series from the first event on, as of a kubelet |
| the dashboards' operations of volumes | without a cluster | volumes that live and die with a pod have none |
| KubeletPlegDurationHigh | all | has a number only when something was listed within five minutes, because events report changes |

Alerts and recorded figures that come from kube-state-metrics, the control plane or node-exporter alone are not evaluated: KubePod*, KubeContainer*, KubeDeployment*, KubeStatefulSet*, KubeDaemonSet*, KubeJob*, KubeHpa*, KubePdb*, Kube*Overcommit, KubeQuota*, KubeNodeNotReady, KubeNodePressure, KubeNodeReadinessFlapping, KubeNodeUnreachable, KubeletTooManyPods, KubePersistentVolumeErrors, KubeAPI*,
KubeAggregatedAPI*, KubeClientCertificateExpiration, KubeSchedulerDown, KubeControllerManagerDown, KubeProxyDown.

## metrics-server

` + "`" + `sudo make test-metrics-server` + "`" +
		` runs metrics-server 0.9 as a pod of a node, by its own manifests, with a real control plane. ` + "`" + `kubectl top nodes` + "`" +
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
	b.WriteString("\n## Beyond a kubelet's\n\nA test compares what a node serves with this table and the one above. `/metrics` also has Go's and the process' own (`go_*`, `process_*`).\n\n| page | name | type | labels | what it tells |\n|---|---|---|---|---|\n")
	for _, o := range beyond {
		fmt.Fprintf(&b, "| /metrics | `%s` | %s | %s | %s |\n", o.name, o.kind, strings.ReplaceAll(o.labels, ",", ", "), o.what)
	}
	b.WriteString("\n## Left out\n\nA metric is left out if what it counts does not exist here, so that no rule takes a zero for good news.\n\n| names | why |\n|---|---|\n")
	for _, a := range absent {
		if names := missing[a.why]; len(names) > 0 {
			slices.Sort(names)
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(slices.Compact(names), "`, `"), a.why)
			delete(missing, a.why)
		}
	}
	return b.String()
}
