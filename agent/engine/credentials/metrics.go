package credentials

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pluginMetrics are the kubelet's metrics of credential provider plugins.
type pluginMetrics struct {
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
	config   *prometheus.GaugeVec
}

func newPluginMetrics(hash string) *pluginMetrics {
	c := &pluginMetrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_credential_provider_plugin_errors_total", Help: "calls of credential provider plugins that failed",
		}, []string{"plugin_name"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_credential_provider_plugin_duration", Help: "duration of calls of a credential provider plugin, in seconds",
			Buckets: prometheus.DefBuckets,
		}, []string{"plugin_name"}),
		config: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_credential_provider_config_info", Help: "the configuration of credential provider plugins, by its hash",
		}, []string{"hash"}),
	}
	c.config.WithLabelValues(hash).Set(1)
	return c
}

func (c *pluginMetrics) observeCall(plugin string, took time.Duration, err error) {
	c.duration.WithLabelValues(plugin).Observe(took.Seconds())
	if err != nil {
		c.errors.WithLabelValues(plugin).Inc()
	}
}

// Collectors returns all metrics, or none on a node without plugins.
func (c *Credentials) Collectors() []prometheus.Collector {
	if c.counts == nil {
		return nil
	}
	return []prometheus.Collector{c.counts.errors, c.counts.duration, c.counts.config}
}
