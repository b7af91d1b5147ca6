package crisuite

import (
	"slices"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// testMetrics checks that every metric has a descriptor and the labels of the descriptor, and that
// the values match the activity of the container.
func testMetrics(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "write", "/file", "some bytes", "alloc", "20", "wait")
	c.Linux.Resources.MemoryLimitInBytes = 256 << 20
	id := b.create(pod, cfg, c)
	b.start(id)
	b.awaitLog(c, "waiting")
	labels := map[string][]string{}
	for _, d := range must(b.Runtime.ListMetricDescriptors(b.ctx, &api.ListMetricDescriptorsRequest{}))(b).Descriptors {
		if labels[d.Name] != nil || d.Help == "" || len(d.LabelKeys) == 0 {
			t.Errorf("descriptor %v", d)
		}
		labels[d.Name] = d.LabelKeys
	}
	list := must(b.Runtime.ListPodSandboxMetrics(b.ctx, &api.ListPodSandboxMetricsRequest{}))(b).PodMetrics
	i := slices.IndexFunc(list, func(m *api.PodSandboxMetrics) bool { return m.PodSandboxId == pod })
	if i < 0 || len(list[i].ContainerMetrics) != 1 || list[i].ContainerMetrics[0].ContainerId != id {
		t.Fatalf("the pod's metrics are not among %v", list)
	}
	sums := map[string]uint64{}
	for _, m := range slices.Concat(list[i].Metrics, list[i].ContainerMetrics[0].Metrics) {
		if len(m.LabelValues) != len(labels[m.Name]) {
			t.Errorf("%s has labels %v for %v", m.Name, m.LabelValues, labels[m.Name])
			continue
		}
		sums[m.Name] += m.Value.GetValue()
		for j, key := range labels[m.Name] {
			if want := map[string]string{"namespace": "test", "pod": "pod"}[key]; want != "" && m.LabelValues[j] != want {
				t.Errorf("%s: label %s is %q", m.Name, key, m.LabelValues[j])
			}
		}
	}
	if got := labels["container_memory_failures_total"]; !slices.Contains(got, "failure_type") || !slices.Contains(got, "scope") {
		t.Errorf("page faults have the labels %v", got)
	}
	for name, least := range map[string]uint64{
		"container_memory_working_set_bytes": 20 << 20, "container_memory_usage_bytes": 20 << 20, "container_memory_rss": 20 << 20,
		"container_fs_usage_bytes": 10, "container_fs_limit_bytes": 1 << 20, "container_processes": 1, "container_threads": 1,
		"container_start_time_seconds": 1e9, "container_spec_memory_limit_bytes": 256 << 20, "container_memory_failures_total": 1,
	} {
		if sums[name] < least {
			t.Errorf("%s is %d, want at least %d", name, sums[name], least)
		}
	}
}
