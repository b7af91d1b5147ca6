package pinning

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/islet-edge/islet/agent/device/topology"
)

// counters contains the number of requests for one kind of resource, and the number of failed requests.
type counters struct{ requests, errors prometheus.Counter }

// metrics contains the metrics of a kubelet's CPU, memory and topology managers.
type metrics struct {
	cpu, memory                   counters
	exclusive, shared             prometheus.Gauge
	perNode                       *prometheus.GaugeVec
	admitted                      counters
	admissionDuration             prometheus.Histogram
	alignedCount, misalignedCount *prometheus.CounterVec
}

func newMetrics() *metrics {
	c := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	g := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return &metrics{
		cpu: counters{c("kubelet_cpu_manager_pinning_requests_total", "containers that requested exclusive CPUs"),
			c("kubelet_cpu_manager_pinning_errors_total", "containers that requested exclusive CPUs and did not get them")},
		memory: counters{c("kubelet_memory_manager_pinning_requests_total", "containers that requested memory of NUMA nodes"),
			c("kubelet_memory_manager_pinning_errors_total", "containers that requested memory of NUMA nodes and did not get it")},
		exclusive: g("kubelet_cpu_manager_exclusive_cpu_allocation_count", "exclusive CPUs of containers"),
		shared:    g("kubelet_cpu_manager_shared_pool_size_millicores", "CPUs that could still become exclusive, in thousandths"),
		perNode: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_cpu_manager_allocation_per_numa",
			Help: "exclusive CPUs of containers, by NUMA node"}, []string{"numa_node"}),
		admitted: counters{c("kubelet_topology_manager_admission_requests_total",
			"pods for which the topology manager made a decision"),
			c("kubelet_topology_manager_admission_errors_total", "pods that could not be placed")},
		admissionDuration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kubelet_topology_manager_admission_duration_ms",
			Help:    "time of a decision, in milliseconds",
			Buckets: prometheus.ExponentialBuckets(.05, 2, 15)}),
		alignedCount: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_container_aligned_compute_resources_count",
			Help: "containers or pods whose resources are aligned"}, []string{"scope", "boundary"}),
		misalignedCount: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_container_aligned_compute_resources_failure_count",
			Help: "containers or pods whose resources could not be aligned",
		}, []string{"scope", "boundary"}),
	}
}

// Collectors returns the metrics of the configured policies.
func (m *Manager) Collectors() (out []prometheus.Collector) {
	if m == nil {
		return nil
	}
	x := m.metrics
	if m.cpus != nil {
		out = append(out, x.cpu.requests, x.cpu.errors, x.exclusive, x.shared, x.perNode)
	}
	if m.memory != nil {
		out = append(out, x.memory.requests, x.memory.errors)
	}
	if m.policy.Name() != topology.None {
		out = append(out, x.admitted.requests, x.admitted.errors, x.admissionDuration, x.alignedCount, x.misalignedCount)
	}
	return out
}

func (x *metrics) countPinning(c *counters, err error) {
	c.requests.Inc()
	if err != nil {
		c.errors.Inc()
	}
}

func (x *metrics) observeAdmission(counts bool, took time.Duration, err error) {
	if !counts {
		return
	}
	x.admitted.requests.Inc()
	x.admissionDuration.Observe(float64(took.Milliseconds()))
	if err != nil {
		x.admitted.errors.Inc()
	}
}

// countAlignment counts a decision of the policy single-numa-node.
func (x *metrics) countAlignment(policy, scope string, ok bool) {
	if policy != topology.SingleNode {
		return
	}
	counter := x.alignedCount
	if !ok {
		counter = x.misalignedCount
	}
	counter.WithLabelValues(scope, "numa_node").Inc()
}

// updateGauges sets the gauges of exclusive and shared CPUs.
func (m *Manager) updateGauges() {
	if m.cpus == nil {
		return
	}
	m.mu.Lock()
	all := m.cpuSets.Union()
	m.mu.Unlock()
	m.metrics.exclusive.Set(float64(all.Size()))
	m.metrics.shared.Set(float64(m.cpus.Allocatable().Difference(all).Size() * 1000))
	m.metrics.perNode.Reset()
	for id, n := range m.cpus.PerNode(all) {
		m.metrics.perNode.WithLabelValues(strconv.Itoa(id)).Set(float64(n))
	}
}
