package counts

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Plugins count what device plugins and drivers of dynamic resources are asked, under the
// names that a kubelet has for it.
type Plugins struct {
	registered         *prometheus.CounterVec
	allocated          *prometheus.HistogramVec
	operations, called *prometheus.HistogramVec
}

// NewPlugins counts from nothing.
func NewPlugins() *Plugins {
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}

	driver := prometheus.ExponentialBucketsRange(.1, 40, 15) // a call may take 45 s
	return &Plugins{
		registered: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_device_plugin_registration_total",
			Help: "device plugins that registered, by the resource that they bring"}, []string{"resource_name"}),
		allocated:  histogram("kubelet_device_plugin_alloc_duration_seconds", "how long device plugins took to give devices to a container", prometheus.DefBuckets, "resource_name"),
		operations: histogram("dra_operations_duration_seconds", "how long it took to prepare, or take back, all claims of a pod", driver, "operation_name", "is_error"),
		called:     histogram("dra_grpc_operations_duration_seconds", "how long drivers of dynamic resources took to answer", driver, "driver_name", "method_name", "grpc_status_code"),
	}
}

// Collectors are all that is counted; claims counts those in use, when it is asked.
func (p *Plugins) Collectors(claims Claims) []prometheus.Collector {
	return []prometheus.Collector{p.registered, p.allocated, p.operations, p.called, claims}
}

// Registered implements deviceplugin.Counter.
func (p *Plugins) Registered(resource string) { p.registered.WithLabelValues(resource).Inc() }

// Allocated implements deviceplugin.Counter.
func (p *Plugins) Allocated(resource string, took time.Duration) {
	p.allocated.WithLabelValues(resource).Observe(took.Seconds())
}

// DRAOperation implements dra.Counter.
func (p *Plugins) DRAOperation(name string, failed bool, took time.Duration) {
	p.operations.WithLabelValues(name, strconv.FormatBool(failed)).Observe(took.Seconds())
}

// DRACall implements dra.Counter.
func (p *Plugins) DRACall(driver, method, code string, took time.Duration) {
	p.called.WithLabelValues(driver, method, code).Observe(took.Seconds())
}

// Claims tells the resource claims that are in use: by driver, and all of them.
type Claims func() (drivers map[string]int, all int)

var claimsInUse = prometheus.NewDesc("dra_resource_claims_in_use", "resource claims that are prepared, or may be, by driver; <any>: all, however many drivers they have", []string{"driver_name"}, nil)

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
