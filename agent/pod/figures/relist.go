package figures

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Watches measures the duration of listing the runtime's state, of changes to the cgroups of pods, and of
// requests to the API server.
type Watches struct {
	relists, intervals   prometheus.Histogram
	cgroups, requests    *prometheus.HistogramVec
	version              prometheus.Gauge
	inPod                prometheus.Histogram
	memoryMin, memoryLow *prometheus.GaugeVec     // no series until the memory of pods is protected
	rotationAge          *prometheus.HistogramVec // no series until a certificate was replaced
}

func newWatches() *Watches {
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	}
	return &Watches{
		relists: prometheus.NewHistogram(histogram("kubelet_pleg_relist_duration_seconds",
			"duration in seconds of a list of all pods in the runtime", prometheus.DefBuckets)),
		intervals: prometheus.NewHistogram(histogram("kubelet_pleg_relist_interval_seconds",
			"interval in seconds between two lists of all pods in the runtime", prometheus.DefBuckets)),
		cgroups: prometheus.NewHistogramVec(histogram("kubelet_cgroup_manager_duration_seconds",
			"duration in seconds of a change of a pod's cgroup", prometheus.DefBuckets), []string{"operation_type"}),
		requests: prometheus.NewHistogramVec(histogram("rest_client_request_duration_seconds",
			"duration in seconds from a request to the API server until the response began",
			[]float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60}), []string{"verb", "host"}),
		version: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_cgroup_version", Help: "version of the cgroups, 1 or 2"}),
		inPod: prometheus.NewHistogram(histogram("kubelet_containers_per_pod_count",
			"number of containers in the pods that were started", []float64{1, 2, 4, 8, 16})),
		rotationAge: prometheus.NewHistogramVec(histogram("kubelet_certificate_manager_server_rotation_seconds",
			"age in seconds of serving certificates that were replaced",
			[]float64{60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000}), nil),
		memoryMin: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_memory_qos_node_memory_min_bytes",
			Help: "memory in bytes that the kernel never reclaims from guaranteed pods (memory.min)"}, nil),
		memoryLow: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_memory_qos_node_memory_low_bytes",
			Help: "memory in bytes that the kernel reclaims from burstable pods last (memory.low)"}, nil),
	}
}

func (w *Watches) collectors() []prometheus.Collector {
	return []prometheus.Collector{w.relists, w.intervals, w.cgroups, w.requests, w.version, w.inPod, w.memoryMin,
		w.memoryLow, w.rotationAge}
}

// ObserveRelist records the duration of a list of the runtime's state, and the interval since the last successful list. The
// parameter before is the time at which the last successful list ended.
func (w *Watches) ObserveRelist(took time.Duration, before time.Time) {
	w.relists.Observe(took.Seconds())
	if !before.IsZero() {
		w.intervals.Observe(time.Since(before).Seconds())
	}
}

// LastSeen returns the metric of the time until which the changes in the runtime are known. Alerts compare this time with the current one.
func LastSeen(seen func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kubelet_pleg_last_seen_seconds",
		Help: "time until which all changes in the runtime are known, in seconds since 1970"},
		func() float64 { return float64(max(seen().Unix(), 0)) }) // zero before the first list
}

// Cgroup records the duration of a change to a pod's cgroup.
func (w *Watches) Cgroup(operation string, took time.Duration) {
	w.cgroups.WithLabelValues(operation).Observe(took.Seconds())
}

// Protected records the memory in bytes that is protected for guaranteed and for burstable pods.
func (w *Watches) Protected(guaranteed, burstable int64) {
	w.memoryMin.WithLabelValues().Set(float64(guaranteed))
	w.memoryLow.WithLabelValues().Set(float64(burstable))
}

// Rotated records that a serving certificate was replaced, and the age of the replaced certificate.
func (w *Watches) Rotated(age time.Duration) { w.rotationAge.WithLabelValues().Observe(age.Seconds()) }

// RequestObserver returns a function that records a request to the API server. The parameter host is a function that
// returns the server's name.
func (w *Watches) RequestObserver(host func() string) func(method string, took time.Duration) {
	return func(method string, took time.Duration) {
		w.requests.WithLabelValues(method, host()).Observe(took.Seconds())
	}
}
