package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
)

// get sends a request to the agent's local socket and returns the body of the response.
func get(t *testing.T, a *machine.Agent, path string) string {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/%d/root/run/islet/islet.sock", a.Pid))
	}
	c := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r, err := c.Get("http://islet" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v\n%s", path, r.Status, err, text)
	}
	return string(text)
}

// loose starts a process directly in the cgroup of a machine.
func loose(t *testing.T, m *machine.Machine) {
	t.Helper()
	p, err := machine.StartProcess(m.Command("sh", "-c", "while :; do sleep 0.1; done"))
	if err != nil {
		t.Fatal(err)
	}
	hierarchies := []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"} // cgroup v1, and the cgroup2 mount of a hybrid host
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		hierarchies = []string{"/sys/fs/cgroup"}
	}
	for _, h := range hierarchies {
		if err := os.Mkdir(h+m.Cgroup, 0o755); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h+m.Cgroup+"/cgroup.procs", fmt.Append(nil, p.Pid), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFigures checks that all metrics pages and the summary contain the figures of a pod with limits.
func TestFigures(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("kubelet.yaml", m.Kubelet("systemCgroups: "+m.Cgroup+"/others\n"+machine.Roomy))
	loose(t, m)
	m.Write("manifests/limited.yaml", strings.Replace(manifest("limited", "", "sleep"), "    image:",
		"    resources: {limits: {cpu: 100m, memory: 32Mi}}\n    image:", 1))
	m.Write("manifests/plain.yaml", manifest("plain", "", "sleep"))
	a := m.StartAgent()
	pods := m.WaitReady("limited-edge", "plain-edge")
	uid := pods["limited-edge"].Metadata.UID
	page := get(t, a, "/metrics/cadvisor")
	if file := os.Getenv("ISLET_PAGE"); file != "" {
		os.WriteFile(file, []byte(page), 0o644)
	}
	of := func(name string, labels ...string) bool {
		for line := range strings.Lines(page) {
			ok := strings.HasPrefix(line, name+"{")
			for _, l := range labels {
				ok = ok && strings.Contains(line, l)
			}
			if ok {
				return true
			}
		}
		return false
	}
	for _, x := range [][]string{
		{"container_cpu_usage_seconds_total", `container="c"`, `pod="limited-edge"`, `namespace="default"`, uid, `image="` + machine.Image, `cpu="total"`},
		{"container_memory_working_set_bytes", `container="c"`, `pod="limited-edge"`}, {"container_memory_working_set_bytes", `container=""`, `pod="limited-edge"`, `image=""`},
		{"container_cpu_cfs_throttled_periods_total", `container="c"`, `pod="limited-edge"`}, {"container_spec_memory_limit_bytes", `container="c"`, `pod="limited-edge"`, "} 33554432"},
		{"container_network_receive_bytes_total", `pod="plain-edge"`, `interface="eth0"`}, {"container_file_descriptors", `pod="plain-edge"`}, {"container_processes", `container="c"`, "} 1 "},
		{"container_start_time_seconds", `container="c"`}, {"container_memory_usage_bytes", `id="/"`}, {"container_cpu_usage_seconds_total", `/kubepods/besteffort"`, `pod=""`},
		{"container_fs_usage_bytes", `container="c"`}, {"machine_memory_bytes"}, {"machine_cpu_cores"},
		{"container_memory_usage_bytes", `id="` + m.Cgroup + `/others"`, `pod=""`},
	} {
		if !of(x[0], x[1:]...) {
			t.Errorf("no %v in\n%s", x, page)
		}
	}
	if of("container_cpu_cfs_periods_total", `pod="plain-edge"`) {
		t.Error("a container without a limit is throttled")
	}
	own := get(t, a, "/metrics")
	for _, want := range []string{"\nkubelet_running_pods 2\n", "\nkubelet_running_containers{container_state=\"running\"} 2\n", "\nkubernetes_feature_enabled{name=\"GracefulNodeShutdown\",stage=\"BETA\"} 1\n"} {
		if !strings.Contains(own, want) {
			t.Errorf("no %q in\n%s", want, own)
		}
	}
	checkPages(t, a)
	ran := regexp.MustCompile(`"name":"misc",[^}]*"usageCoreNanoSeconds":[1-9]`)
	m.Await("processes outside pods to have run in the cgroup to which the agent moved them", func() bool { return ran.MatchString(get(t, a, "/stats/summary")) })
	for path, whole := range map[string]bool{"/stats/summary": true, "/stats/summary?only_cpu_and_memory=true": false} {
		sum := get(t, a, path)
		checkSummary(t, sum, whole)
		for _, name := range []string{"misc", "pods"} {
			if !strings.Contains(sum, `{"name":"`+name+`","startTime":`) {
				t.Errorf("no system container %s in %s", name, sum)
			}
		}
	}
	if top := m.Islet("top", "--containers"); !strings.Contains(top, "limited-edge") {
		t.Errorf("islet top:\n%s", top)
	}
	if top := m.Islet("top", "-o", "wide"); !strings.Contains(top, "READ/s") ||
		len(strings.Fields(top[strings.Index(top, "plain-edge"):])) < 8 {
		t.Errorf("islet top -o wide:\n%s", top)
	}
}

// optionalMetrics contains patterns of metrics that the node in this test need not serve, with the reason. The node has two plain
// pods, no cluster and no client at its port. TestFiguresOfWork in test/cluster checks the metrics of a busier node. A pattern matches the
// whole name.
var optionalMetrics = map[string]string{
	`csi_.*|dra_.*_operations_.*|dra_operations_.*|kubelet_device_plugin_.*|kubelet_credential_provider_.*|plugin_manager_total_plugins`:                                              "plugins, of which it has none",
	`kubelet_certificate_manager_.*|kubelet_server_expiration_.*|rest_client_.*|islet_events_dropped_total|kubelet_podcertificate_states|kubelet_mirror_pods|kubelet_node_startup_.*`: "a control plane",
	`kubelet_node_config_.*|islet_configuration_(trials|result)|islet_update_(trials|result|rollout)|islet_bundle_.*`:                                                                 "a configuration, a version or a bundle that it was sent",
	`kubelet_container_aligned_.*|kubelet_cpu_manager_.*|kubelet_memory_manager_.*|kubelet_topology_manager_.*`:                                                                       "a policy other than none",
	`kubelet_pod_.*resize.*|kubelet_container_requested_resizes_total`:                                                                                                                "a resize",
	`kubelet_eviction_.*|kubelet_preemptions|kubelet_image_garbage_collected_total`:                                                                                                   "the first of what is counted by its reason",
	`kubelet_http_.*`:                     "requests at its port",
	`kubelet_image_pull_duration_seconds`: "a registry",
	`kubelet_runtime_operations_errors_total|kubelet_started_containers_errors_total`:                      "an error",
	`kubelet_pod_requests_.*|kubelet_pod_resources_endpoint_.*|kubelet_websocket_streaming_requests_total`: "a client of these APIs",
	`kubelet_admission_rejections_total|kubelet_terminated_containers_total`:                               "a rejected pod, and a container that has ended",
	`kubelet_memory_qos_.*`:                                      "cgroup v2 and memoryReservationPolicy",
	`volume_manager_selinux_.*|volume_manager_total_volumes`:     "volumes, and SELinux",
	`kubelet_volume_stats_.*|storage_operation_duration_seconds`: "volumes of claims",
	`container_memory_(events_(high|max)|pgscan|pgsteal|workingset_refault_(anon|file))_total|container_memory_file_(dirty|writeback)_bytes`: "cgroup v2",
	`container_blkio_.*|container_fs_(reads|writes)_.*|container_pressure_.*`:                                                                "I/O by a container; cgroup v2 and its pressures",
	`prober_.*`: "probes",
}

// checkPages compares the metrics of the node with the documentation. The documentation is generated from upstream's list.
func checkPages(t *testing.T, a *machine.Agent) {
	t.Helper()
	for _, name := range figures.Check(t, machine.Root(t), func(path string) string { return get(t, a, path) }) {
		if figures.FindPattern(optionalMetrics, name) == "" {
			t.Errorf("no page has %s", name)
		}
	}
}

type stat struct {
	Time                                                                      string
	UsageCoreNanoSeconds, WorkingSetBytes, RSSBytes, UsedBytes, CapacityBytes uint64
	AvailableBytes                                                            *uint64
	RxBytes                                                                   uint64
}

func checkSummary(t *testing.T, text string, whole bool) {
	t.Helper()
	type container struct {
		Name, StartTime                 string
		CPU, Memory, Swap, Rootfs, Logs *stat
	}
	var sum struct {
		Node struct {
			StartTime             string
			CPU, Memory, Swap, Fs *stat
			Network               *stat
			Runtime               *struct{ ImageFs, ContainerFs *stat }
			Rlimit                *struct{ Maxpid, Curproc int64 }
			SystemContainers      []container
		}
		Pods []struct {
			PodRef                     struct{ Name string }
			StartTime                  string
			Containers                 []container
			CPU, Memory, Swap, Network *stat
			Ephemeral                  *stat `json:"ephemeral-storage"`
			ProcessStats               *struct {
				Count int `json:"process_count"`
			} `json:"process_stats"`
		}
	}
	if err := json.Unmarshal([]byte(text), &sum); err != nil {
		t.Fatal(err)
	}
	n := sum.Node
	if n.StartTime == "" || n.CPU == nil || n.Memory == nil || n.Memory.WorkingSetBytes == 0 || n.Swap == nil || len(sum.Pods) != 2 {
		t.Fatalf("incomplete: %s", text)
	}
	if all := n.Fs != nil && n.Rlimit != nil && n.Rlimit.Curproc > 0 && n.Runtime != nil && n.Runtime.ImageFs != nil &&
		n.Runtime.ImageFs.UsedBytes > 0 && n.Runtime.ContainerFs != nil; all != whole {
		t.Errorf("file systems of the node: %s", text)
	}
	for _, c := range n.SystemContainers {
		if c.CPU == nil || c.CPU.UsageCoreNanoSeconds == 0 {
			t.Errorf("system container %s without CPU time: %s", c.Name, text)
		}
	}
	for _, p := range sum.Pods {
		if p.StartTime == "" || p.CPU == nil || p.CPU.UsageCoreNanoSeconds == 0 || p.Memory == nil || p.Memory.WorkingSetBytes == 0 ||
			len(p.Containers) != 1 {
			t.Errorf("pod %+v in %s", p, text)
			continue
		}
		c := p.Containers[0]
		if c.StartTime == "" || c.CPU == nil || c.Memory == nil || c.Swap == nil ||
			(c.Memory.AvailableBytes != nil) != (p.PodRef.Name == "limited-edge") {
			t.Errorf("container %+v in %s", c, text)
		}
		if all := p.Network != nil && p.Ephemeral != nil && p.ProcessStats != nil && p.ProcessStats.Count > 0 && c.Rootfs != nil &&
			c.Logs != nil && c.Logs.CapacityBytes > 0; all != whole {
			t.Errorf("file systems of %s: %s", p.PodRef.Name, text)
		}
	}
}
