package figures

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Watches counts how the node keeps up: lists of the runtime's state, changes of pod cgroups, and requests to the API
// server.
type Watches struct {
	relists, intervals prometheus.Histogram
	seen               prometheus.Gauge
	cgroups, requests  *prometheus.HistogramVec
	version            prometheus.Gauge
	inPod              prometheus.Histogram
}

func newWatches() *Watches {
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	}
	return &Watches{
		relists: prometheus.NewHistogram(histogram("kubelet_pleg_relist_duration_seconds",
			"how long it took to list all that the runtime has", prometheus.DefBuckets)),
		intervals: prometheus.NewHistogram(histogram("kubelet_pleg_relist_interval_seconds",
			"time between two such lists; in between events tell", prometheus.DefBuckets)),
		seen: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_pleg_last_seen_seconds",
			Help: "when the runtime was last listed, in seconds since 1970"}),
		cgroups: prometheus.NewHistogramVec(histogram("kubelet_cgroup_manager_duration_seconds",
			"how long it took to change the cgroup of a pod", prometheus.DefBuckets), []string{"operation_type"}),
		requests: prometheus.NewHistogramVec(histogram("rest_client_request_duration_seconds",
			"how long requests to the API server took until the answer began",
			[]float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60}), []string{"verb", "host"}),
		version: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_cgroup_version", Help: "version of cgroups: 1 or 2"}),
		inPod: prometheus.NewHistogram(histogram("kubelet_containers_per_pod_count", "containers of the pods that were started",
			[]float64{1, 2, 4, 8, 16})),
	}
}

func (w *Watches) collectors() []prometheus.Collector {
	return []prometheus.Collector{w.relists, w.intervals, w.seen, w.cgroups, w.requests, w.version, w.inPod}
}

// Relisted records a list of the runtime's state. before is the time of the previous one.
func (w *Watches) Relisted(took time.Duration, before time.Time) {
	w.relists.Observe(took.Seconds())
	now := time.Now()
	if !before.IsZero() {
		w.intervals.Observe(now.Sub(before).Seconds())
	}
	w.seen.Set(float64(now.Unix()))
}

// Cgroup records the duration of a change to a pod's cgroup.
func (w *Watches) Cgroup(operation string, took time.Duration) {
	w.cgroups.WithLabelValues(operation).Observe(took.Seconds())
}

// Asked returns a function that records a request to the API server. host returns the server's name.
func (w *Watches) Asked(host func() string) func(method string, took time.Duration) {
	return func(method string, took time.Duration) {
		w.requests.WithLabelValues(method, host()).Observe(took.Seconds())
	}
}
