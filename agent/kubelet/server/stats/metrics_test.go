package stats_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/metrics/exposition"
)

// TestMetrics checks that Prometheus can parse the metrics pages. Each page has the expected metrics.
func TestMetrics(t *testing.T) {
	begin := time.Now()
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took_seconds", Help: "a figure of another room"})
	took.Observe(1)
	a := servertest.OpenAPI(t, n.Variant(t, func(c *server.Config) { c.Collectors, c.ProbeMetrics = []prometheus.Collector{took}, took }))
	client := a.Client()
	scrape := func(path string) map[string]*dto.MetricFamily {
		t.Helper()
		_, text := servertest.Fetch(t, client, "GET", "https://"+a.Addr+path)
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v in\n%s", path, err, text)
		}
		return families
	}
	for range 2 { // the second scrape shows the figures of the first one
		scrape("/metrics")
	}
	for path, families := range map[string]map[string]dto.MetricType{
		"/metrics": {
			"kubelet_running_pods": dto.MetricType_GAUGE, "kubelet_running_containers": dto.MetricType_GAUGE, "kubelet_node_name": dto.MetricType_GAUGE,
			"kubernetes_build_info": dto.MetricType_GAUGE, "kubelet_http_requests_total": dto.MetricType_COUNTER,
			"kubelet_http_requests_duration_seconds": dto.MetricType_HISTOGRAM, "kubelet_http_inflight_requests": dto.MetricType_GAUGE,
			"took_seconds": dto.MetricType_HISTOGRAM, "go_goroutines": dto.MetricType_GAUGE, "process_cpu_seconds_total": dto.MetricType_COUNTER,
			"process_open_fds": dto.MetricType_GAUGE, "process_start_time_seconds": dto.MetricType_GAUGE,
		},
		"/metrics/resource": { // metrics-server reads this page
			"container_cpu_usage_seconds_total": dto.MetricType_COUNTER, "container_memory_working_set_bytes": dto.MetricType_GAUGE,
			"container_start_time_seconds": dto.MetricType_GAUGE, "pod_cpu_usage_seconds_total": dto.MetricType_COUNTER,
			"pod_memory_working_set_bytes": dto.MetricType_GAUGE, "scrape_error": dto.MetricType_GAUGE,
		},
		"/metrics/cadvisor": {"container_cpu_usage_seconds_total": dto.MetricType_COUNTER, "container_memory_working_set_bytes": dto.MetricType_GAUGE},
		"/metrics/probes":   {"process_start_time_seconds": dto.MetricType_GAUGE, "took_seconds": dto.MetricType_HISTOGRAM},
	} {
		got := scrape(path)
		for name, want := range families {
			if f := got[name]; f == nil || f.GetType() != want {
				t.Errorf("%s: %s is %v, want a %v", path, name, f, want)
			}
		}
	}
	for _, path := range []string{"/metrics", "/metrics/probes"} { // the server's start, not the process's
		from, to := float64(begin.UnixMilli())/1000, float64(time.Now().UnixMilli())/1000
		if v := scrape(path)["process_start_time_seconds"].GetMetric()[0].GetGauge().GetValue(); v < from || v > to {
			t.Errorf("%s: counted since %f, want from %f to %f", path, v, from, to)
		}
	}
	requests := scrape("/metrics")["kubelet_http_requests_total"].Metric[0].GetCounter().GetValue()
	if requests < 3 {
		t.Errorf("%v requests were counted", requests)
	}
}

// TestPodCounts checks that the metrics count ephemeral containers and mirror pods. A node without a control plane has no mirror pods.
func TestPodCounts(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	pod := n.Pod("debugged", time.Now(), "nginx")
	pod.Annotations[keys.ConfigSource] = keys.SourceAPI
	pod.Spec.EphemeralContainers = make([]v1.EphemeralContainer, 2)
	n.Put(pod)
	alone := servertest.Scrape(t, n.Server, "/metrics")
	joined := servertest.Scrape(t, n.Variant(t, func(c *server.Config) { c.Metrics = func() []exposition.Sample { return nil } }), "/metrics")
	for name, want := range map[string]float64{"kubelet_managed_ephemeral_containers": 2, "kubelet_mirror_pods": 1} {
		if m := joined[name].GetMetric(); len(m) != 1 || m[0].GetGauge().GetValue() != want {
			t.Errorf("%s is %v, not %v", name, m, want)
		}
	}
	for _, name := range []string{"kubelet_desired_pods", "kubelet_active_pods"} {
		counts := map[string]float64{}
		for _, m := range joined[name].GetMetric() {
			counts[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
		if want := map[string]float64{"": 1, "true": 1}; !maps.Equal(counts, want) {
			t.Errorf("%s by static is %v, not %v", name, counts, want)
		}
	}
	if m := alone["kubelet_mirror_pods"].GetMetric(); len(m) > 0 {
		t.Errorf("mirror pods without a control plane: %v", m)
	}
}

// BenchmarkScrape measures the cost of a scrape.
func BenchmarkScrape(b *testing.B) {
	n, _ := servertest.Start(b)
	n.Pod("web", time.Now(), "nginx")
	a := servertest.OpenAPI(b, n.Server)
	client := a.Client()
	b.ReportAllocs()
	for b.Loop() {
		servertest.Fetch(b, client, "GET", "https://"+a.Addr+"/metrics")
	}
}
