package counts

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Plugins contains a kubelet's metrics of device plugins and DRA drivers.
type Plugins struct {
	registrations            *prometheus.CounterVec
	allocateDuration         *prometheus.HistogramVec
	operations, callDuration *prometheus.HistogramVec
	PodResources             *PodResources
}

// NewPlugins returns the metrics with all counters at zero.
func NewPlugins() *Plugins {
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}

	driver := prometheus.ExponentialBucketsRange(.1, 40, 15) // a call may take 45 s
	return &Plugins{
		PodResources: newPodResources(),
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_device_plugin_registration_total",
			Help: "registrations of device plugins, by resource"}, []string{"resource_name"}),
		allocateDuration: histogram("kubelet_device_plugin_alloc_duration_seconds", "duration of Allocate calls to device plugins",
			prometheus.DefBuckets, "resource_name"),
		operations: histogram("dra_operations_duration_seconds", "duration of preparing or unpreparing all claims of a pod",
			driver, "operation_name", "is_error"),
		callDuration: histogram("dra_grpc_operations_duration_seconds", "duration of gRPC calls to DRA drivers",
			driver, "driver_name", "method_name", "grpc_status_code"),
	}
}

// Collectors returns all metrics, including the given collector of resource claims in use.
func (p *Plugins) Collectors(claims Claims) []prometheus.Collector {
	return append(p.PodResources.collectors(), p.registrations, p.allocateDuration, p.operations, p.callDuration, claims)
}

// Registered implements deviceplugin.Counter.
func (p *Plugins) Registered(resource string) { p.registrations.WithLabelValues(resource).Inc() }

// Allocated implements deviceplugin.Counter.
func (p *Plugins) Allocated(resource string, took time.Duration) {
	p.allocateDuration.WithLabelValues(resource).Observe(took.Seconds())
}

// DRAOperation implements dra.Counter.
func (p *Plugins) DRAOperation(name string, failed bool, took time.Duration) {
	p.operations.WithLabelValues(name, strconv.FormatBool(failed)).Observe(took.Seconds())
}

// DRACall implements dra.Counter.
func (p *Plugins) DRACall(driver, method, code string, took time.Duration) {
	p.callDuration.WithLabelValues(driver, method, code).Observe(took.Seconds())
}

// Claims is a collector of the number of resource claims in use. The function returns this number by driver and in
// total.
type Claims func() (drivers map[string]int, all int)

var claimsInUse = prometheus.NewDesc("dra_resource_claims_in_use",
	"resource claims that are or may be prepared, by driver; <any> counts every claim once", []string{"driver_name"}, nil)

// Describe implements prometheus.Collector.
func (Claims) Describe(to chan<- *prometheus.Desc) { to <- claimsInUse }

// Collect implements prometheus.Collector.
func (c Claims) Collect(to chan<- prometheus.Metric) {
	drivers, all := c()
	drivers["<any>"] = all
	for name, n := range drivers {
		to <- prometheus.MustNewConstMetric(claimsInUse, prometheus.GaugeValue, float64(n), name)
	}
}
