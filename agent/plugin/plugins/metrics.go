package plugins

import "github.com/prometheus/client_golang/prometheus"

var totalPlugins = prometheus.NewDesc("plugin_manager_total_plugins",
	"number of plugins, by socket: with a socket (desired_state_of_world), and registered (actual_state_of_world)",
	[]string{"socket_path", "state"}, nil)

// Collectors returns the metric of the plugins.
func (r *Registry) Collectors() []prometheus.Collector { return []prometheus.Collector{collector{r}} }

type collector struct{ r *Registry }

// Describe implements prometheus.Collector.
func (collector) Describe(out chan<- *prometheus.Desc) { out <- totalPlugins }

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	var all []prometheus.Metric
	add := func(path, state string) {
		all = append(all, prometheus.MustNewConstMetric(totalPlugins, prometheus.GaugeValue, 1, path, state))
	}
	c.r.mu.Lock()
	for path, s := range c.r.sockets {
		if s.exists {
			add(path, "desired_state_of_world")
		}
		if s.registered != nil {
			add(path, "actual_state_of_world")
		}
	}
	c.r.mu.Unlock()
	for _, m := range all {
		out <- m
	}
}
