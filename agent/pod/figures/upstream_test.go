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
	"container_network_*":        "of a pod's own cgroup, not of a sandbox container's, as pods have none; the label name is the sandbox's ID, which no other figure has, and image is empty. Pods of the host's network have none. Of the machine (id=\"/\") the host's ends of pods' veths are left out: isl* with 12 digits, and as upstream veth*, docker* and nerdctl*",
	"container_oom_events_total": "processes that the kernel killed for want of memory, at whatever limit, as it counts them for a cgroup: with v2 also in all cgroups above but the root, with v1 only in that of the process. What ends with the cgroup of its container goes with it: then the pod has it with v2, and with v1 nobody; kube-state-metrics has kube_pod_container_status_last_terminated_reason. A kubelet counts by the kernel's log, in the cgroup whose limit was met",
	"container_memory_failcnt":   "as the kernel counts: with v2 also in all cgroups above; with v1 where the limit was set, which for the only container of a pod is its pod, and not where that of memory and swap was met, as by a container that may not swap",
	"container_fs_*":             "sectors, times and merges are those of the machine (id=\"/\")",
	"help":                       "texts are islet's own, and not compared",
	"node memory":                "the working set in Summary and in node_memory_working_set_bytes is MemTotal less MemAvailable, so that it has the kernel's own memory and nothing that it can give back; a kubelet's is that of the root cgroup, container_memory_working_set_bytes{id=\"/\"}. What is used has the page cache, as a kubelet's",
}

// beyond are names that a kubelet does not have, or has no more, with what they tell.
var beyond = []struct{ name, kind, labels, what string }{
	{"islet_build_info", "gauge", "version", "the version"},
	{"islet_events_dropped_total", "counter", "", "events that were dropped before the API server had them"},
	{"islet_system_oom_kills_total", "counter", "", "processes that the kernel killed as the machine had no memory left"},
	{"islet_network_repairs_total", "counter", "item", "items of the built-in pod network (table, bridge, port, address, route, sysctl, firewall) that were repaired after another program removed or changed them"},
	{"islet_flash_written_bytes_total", "counter", "cause", "what was written to disks by islet and its pods, by database, images, logs and pods"},
	{"islet_flash_device_written_bytes_total", "counter", "", "what anybody wrote to the disk of the state directory"},
	{"islet_flash_budget_bytes", "gauge", "", "what may be written a day; 0: no budget"},
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
	out, err := exec.Command("grep", "-rhE", `"[a-z]+_[a-z_]+"`, "--include=*.go", "--exclude=*_test.go", "../..", "../../../metrics", "../../../edge").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func document(served []upstreamMetric, missing map[string][]string) string {
	var b strings.Builder
	b.WriteString(`# Metrics

What Prometheus, metrics-server, and rules and dashboards made for a kubelet find on a node, on the
ports and paths of a kubelet. This page is made by ` + "`go test ./agent/pod/figures -run TestUpstream -update`" + ` from
the list of names of Kubernetes' and cAdvisor's own modules and from what islet serves: names, types
and labels are upstream's.

Nothing is measured unless somebody asks, and pages that are scraped within a second share one
measurement. ` + "`/stats/summary`" + ` is complete, takes ` + "`only_cpu_and_memory=true`" + `, and answers POST too.
Its system containers are a kubelet's: ` + "`kubelet` and `runtime`" + `, which are the agent's cgroup unless that is the root, ` + "`pods`" + `, and with ` + "`systemCgroups`" + `
` + "`misc`" + `, which /metrics/cadvisor has under its id, too.

Who asks again within two minutes, as scrapers do, has only that read which may have changed: in a cgroup
whose CPU time and memory are as before no process has run, nor in any below it, so that they are read as a
whole only every two to four minutes; and no file says what went through the interfaces of such a pod unless
the host's ends of its veths have counted something. A limit that the node changes shows at once, one that
somebody else writes into a cgroup within those minutes. Pages are compressed for who accepts gzip.

` + "`islet top node`" + ` shows the sensors of the board besides: temperatures, frequency, under-voltage and throttling; with ` + "`-o wide`" + ` also what
goes over all interfaces of hardware together, while the Summary API names one of them: eth0, or else the first, as of a kubelet. ` + "`islet top -o wide`" + ` says of pods and
containers in which share of the last ten seconds a process waited for CPU (also at its limit), memory and disks, where cgroups are v2; and what they read from disks and write to them in a second,
as their cgroups count it (with v1 not what the kernel writes later), each byte once, where it is on a disk: not in what LVM, RAID or encryption make of disks, nor in files and memory that are used as disks.

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

` + "`sudo make test-prometheus`" + ` lets a real Prometheus (its Go module: scraping, storage and rule engine) scrape a node by itself and one of a cluster, and evaluates what the
rules and dashboards of kubernetes-mixin and kube-prometheus take from a kubelet. The expressions, ` + "`test/prometheus/testdata/rules.yaml`" + `, are islet's own, under the names of theirs. Their alerts are evaluated with their conditions, and none is active on a node that is well. All yield data on a node of a cluster, which Prometheus scrapes with the token of
a service account that may get ` + "`nodes/metrics`" + ` only, but for the dashboards' numbers of volumes (volume_manager_total_volumes),
errors of the configuration (kubelet_node_config_error, which a kubelet up to 1.24 has; here a node that was sent one) and errors of storage operations (storage_operation_errors_total, which a
kubelet has no more; ` + "`storage_operation_duration_seconds_count{status!=\"success\"}`" + ` counts them). On a node without a control plane all but those and:

- KubeletClientCertificateExpiration, KubeletClientCertificateRenewalErrors, KubeletServerCertificateExpiration, KubeletServerCertificateRenewalErrors,
  KubeClientErrors and the dashboards' requests to the API server: there is no API server, and so no certificate for it.
- KubePersistentVolumeFillingUp, KubePersistentVolumeInodesFillingUp: a claim of a node by itself is a directory, without a size of its own.
- KubeNodeEviction, and the dashboards' errors of operations: there are series from the first one on, as of a kubelet.
- The dashboards' operations of volumes: those that live and die with a pod have none.

Not evaluated is what takes nothing from a node. From kube-state-metrics alone take the alerts on workloads (KubePod*, KubeContainer*, KubeDeployment*, KubeStatefulSet*,
KubeDaemonSet*, KubeJob*, KubeHpa*, KubePdb*), on requests and quotas (Kube*Overcommit, KubeQuota*), on the Node object (KubeNodeNotReady, KubeNodePressure, KubeNodeReadinessFlapping,
KubeNodeUnreachable, KubeletTooManyPods) and KubePersistentVolumeErrors, and the recorded kube_pod_container_resource_*, kube_pod_owner and kube_pod_info; from the control
plane KubeAPI*, KubeAggregatedAPI*, KubeClientCertificateExpiration, KubeSchedulerDown, KubeControllerManagerDown, KubeProxyDown and what is recorded of apiserver_* and scheduler_*;
from node-exporter the recorded node_cpu_* and node_memory_*.

KubeletPlegDurationHigh has a number only when something was listed within five minutes, as here events tell of changes, and never alerts otherwise.

## metrics-server

` + "`sudo make test-metrics-server`" + ` runs metrics-server 0.9 (its Go module, unchanged) as a pod of a node, by its own manifests, with etcd, kube-apiserver and
controller manager. Two things are changed in the manifests: the image, and ` + "`--kubelet-certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt`" + `,
since the node has ` + "`serverTLSBootstrap: true`" + ` and its request is approved. ` + "`--kubelet-insecure-tls`" + ` is not needed; it is where the serving certificate
is self-signed, as with a kubelet. metrics-server asks for ` + "`/metrics/resource`" + ` with the token of its service account, which of a node may get
` + "`nodes/metrics`" + ` only. ` + "`kubectl top nodes`" + ` and ` + "`kubectl top pods`" + ` show what pods use, and a HorizontalPodAutoscaler scales a Deployment by CPU from one pod to three.
`)
	b.WriteString("\n## Served\n\n| page | name | type | labels | stability |\n|---|---|---|---|---|\n")
	slices.SortFunc(served, func(a, b upstreamMetric) int { return cmp.Or(cmp.Compare(a.page, b.page), cmp.Compare(a.name, b.name)) })
	for _, u := range served {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", u.page, u.name, u.typeOf(), strings.ReplaceAll(u.labels, ",", ", "), u.stability)
	}
	b.WriteString("\n## Beyond a kubelet's\n\nA test holds what a node serves against this table and the one above: nothing is there under another name, type or set of\nlabels, and what is not there is listed with why. `/metrics` also has Go's and the process' own (`go_*`, `process_*`).\n\n| page | name | type | labels | what it tells |\n|---|---|---|---|---|\n")
	for _, o := range beyond {
		fmt.Fprintf(&b, "| /metrics | `%s` | %s | %s | %s |\n", o.name, o.kind, strings.ReplaceAll(o.labels, ",", ", "), o.what)
	}
	b.WriteString("\n## Left out\n\nA name whose event does not exist here is left out, so that no rule takes a zero for good news.\n\n| names | why |\n|---|---|\n")
	for _, a := range absent {
		if names := missing[a.why]; len(names) > 0 {
			slices.Sort(names)
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.Join(slices.Compact(names), "`, `"), a.why)
			delete(missing, a.why)
		}
	}
	return b.String()
}
