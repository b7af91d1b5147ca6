package exposition

import (
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Resource gives the figures of /metrics/resource, which metrics-server reads:
// with err, only that there was one.
// https://kubernetes.io/docs/reference/instrumentation/node-metrics/
func Resource(sum *stats.Summary, err error) []Sample {
	var r resource
	failed := 0.0
	if err == nil {
		r.node(&sum.Node)
		for i := range sum.Pods {
			r.pod(&sum.Pods[i])
		}
	} else {
		failed = 1
	}
	const help = "1 if the figures could not be measured"
	return append(r.samples,
		Sample{Name: "scrape_error", Help: help, Value: failed},
		Sample{Name: "resource_scrape_error", Help: help, Value: failed})
}

type resource struct{ samples []Sample }

func (r *resource) node(n *stats.NodeStats) {
	r.cpu("node_cpu_usage_seconds_total", n.CPU)
	r.memory("node_memory_working_set_bytes", n.Memory)
	r.swap("node_swap_usage_bytes", n.Swap)
}

func (r *resource) pod(p *stats.PodStats) {
	pod := []string{"namespace", p.PodRef.Namespace, "pod", p.PodRef.Name}
	for i := range p.Containers {
		c := &p.Containers[i]
		labels := append([]string{"container", c.Name}, pod...)
		if c.StartTime.Unix() > 0 {
			r.samples = append(r.samples, Sample{Name: "container_start_time_seconds", Help: "when the container started, since 1970",
				Labels: labels, Value: float64(c.StartTime.UnixNano()) / float64(time.Second)})
		}
		r.cpu("container_cpu_usage_seconds_total", c.CPU, labels...)
		r.memory("container_memory_working_set_bytes", c.Memory, labels...)
		r.swap("container_swap_usage_bytes", c.Swap, labels...)
		if s := c.Swap; s != nil && s.SwapAvailableBytes != nil {
			limit := *s.SwapAvailableBytes
			if s.SwapUsageBytes != nil {
				limit += *s.SwapUsageBytes
			}
			r.add("container_swap_limit_bytes", "swap that may be used", Gauge, s.Time.Time, float64(limit), labels)
		}
	}
	r.cpu("pod_cpu_usage_seconds_total", p.CPU, pod...)
	r.memory("pod_memory_working_set_bytes", p.Memory, pod...)
	r.swap("pod_swap_usage_bytes", p.Swap, pod...)
}

func (r *resource) cpu(name string, c *stats.CPUStats, labels ...string) {
	if c != nil && c.UsageCoreNanoSeconds != nil {
		r.add(name, "CPU time used, in seconds of one core", Counter, c.Time.Time, float64(*c.UsageCoreNanoSeconds)/float64(time.Second), labels)
	}
}

func (r *resource) memory(name string, m *stats.MemoryStats, labels ...string) {
	if m != nil && m.WorkingSetBytes != nil {
		r.add(name, "memory that cannot be dropped", Gauge, m.Time.Time, float64(*m.WorkingSetBytes), labels)
	}
}

func (r *resource) swap(name string, s *stats.SwapStats, labels ...string) {
	if s != nil && s.SwapUsageBytes != nil {
		r.add(name, "swap in use", Gauge, s.Time.Time, float64(*s.SwapUsageBytes), labels)
	}
}

func (r *resource) add(name, help string, k Kind, at time.Time, v float64, labels []string) {
	r.samples = append(r.samples, Sample{Name: name, Help: help, Kind: k, Labels: labels, Value: v, At: at})
}
