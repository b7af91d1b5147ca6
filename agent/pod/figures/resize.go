package figures

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Resizes counts resizes of running pods and their results (KEP-1287).
type Resizes struct {
	requested, infeasible, accepted *prometheus.CounterVec
	resizeDuration, deferred        *prometheus.HistogramVec
}

// Resizing returns the number of pods with a pending resize, by reason and priority bucket, and the number of
// pods with a resize in progress.
type Resizing func() (pending map[[2]string]int, inProgress int)

func newResizes() *Resizes {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Resizes{
		requested: counter("kubelet_container_requested_resizes_total", "number of requested changes of a container's resources",
			"resource", "requirement", "operation"),
		infeasible: counter("kubelet_pod_infeasible_resizes_total", "number of resizes that the node cannot carry out", "reason_detail"),
		accepted: counter("kubelet_pod_deferred_accepted_resizes_total",
			"number of resizes that were accepted after they had been deferred", "retry_trigger"),
		resizeDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_resize_duration_milliseconds",
			Help:    "duration in milliseconds of the resize of a pod",
			Buckets: []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}},
			[]string{"success"}),
		deferred: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_pod_deferred_resize_duration_seconds",
			Help:    "time in seconds for which resizes were deferred, by how that ended and by the priority of the pod",
			Buckets: []float64{5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600}},
			[]string{"resolution", "priority_bucket"}),
	}
}

// CountRequested counts a requested change of a container's resources.
func (r *Resizes) CountRequested(resource, requirement, operation string) {
	r.requested.WithLabelValues(resource, requirement, operation).Inc()
}

// CountInfeasible counts a resize that the node cannot carry out.
func (r *Resizes) CountInfeasible(detail string) { r.infeasible.WithLabelValues(detail).Inc() }

// CountAccepted counts a deferred resize that was then accepted.
func (r *Resizes) CountAccepted(trigger string) { r.accepted.WithLabelValues(trigger).Inc() }

// ObserveResolved records for how long a resize was deferred. The outcome, called the resolution, is accepted, reverted
// or terminated.
func (r *Resizes) ObserveResolved(resolution, priority string, after time.Duration) {
	r.deferred.WithLabelValues(resolution, priority).Observe(after.Seconds())
}

func (r *Resizes) observeResize(d time.Duration, err error) {
	r.resizeDuration.WithLabelValues(strconv.FormatBool(err == nil)).Observe(float64(d.Milliseconds()))
}

func (r *Resizes) collectors(now Resizing) []prometheus.Collector {
	return []prometheus.Collector{r.requested, r.infeasible, r.accepted, r.resizeDuration, r.deferred, now}
}

var (
	pendingResizes = prometheus.NewDesc("kubelet_pod_pending_resizes", "number of pods with a pending resize",
		[]string{"reason", "priority_bucket"}, nil)
	movingResizes = prometheus.NewDesc("kubelet_pod_in_progress_resizes", "number of pods that are being resized", nil, nil)
)

// Describe implements prometheus.Collector.
func (Resizing) Describe(out chan<- *prometheus.Desc) { out <- pendingResizes; out <- movingResizes }

// Collect implements prometheus.Collector.
func (r Resizing) Collect(out chan<- prometheus.Metric) {
	pending, moving := r()
	for labels, n := range pending {
		out <- prometheus.MustNewConstMetric(pendingResizes, prometheus.GaugeValue, float64(n), strings.ToLower(labels[0]), labels[1])
	}
	out <- prometheus.MustNewConstMetric(movingResizes, prometheus.GaugeValue, float64(moving))
}
