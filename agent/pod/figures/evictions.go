package figures

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// evictionSignals are the usual causes of evictions. Their counters exist from the first scrape on, so that a rate
// also shows the first eviction.
var evictionSignals = []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
	"pid.available"}

// Evictions counts the pods that were evicted.
type Evictions struct {
	evicted *prometheus.CounterVec
	age     *prometheus.HistogramVec
}

func newEvictions() *Evictions {
	signal := []string{"eviction_signal"}
	e := &Evictions{
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_evictions",
			Help: "number of evicted pods by eviction signal or exceeded limit"}, signal),
		age: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_eviction_stats_age_seconds",
			Help: "age in seconds of the usage data for which a pod was evicted", Buckets: prometheus.DefBuckets}, signal),
	}
	for _, s := range evictionSignals {
		e.evicted.WithLabelValues(s)
	}
	return e
}

func (e *Evictions) collectors() []prometheus.Collector {
	return []prometheus.Collector{e.evicted, e.age}
}

// Evicted counts the eviction of a pod, by the eviction signal or the exceeded limit.
func (e *Evictions) Evicted(signal string) { e.evicted.WithLabelValues(signal).Inc() }

// Age records the age of the usage figures that caused an eviction.
func (e *Evictions) Age(signal string, age time.Duration) {
	e.age.WithLabelValues(signal).Observe(age.Seconds())
}
