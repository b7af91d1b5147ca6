package objects

import "github.com/prometheus/client_golang/prometheus"

// certificateStates implements the kubelet's metric of podCertificate volume sources.
var certificateStates = prometheus.NewDesc("kubelet_podcertificate_states",
	"Projected podCertificate sources of this node's pods, by their signer and by how they are.",
	[]string{"signer_name", "state"}, nil)

// Collectors returns the metrics about the objects of pods.
func (o *Objects) Collectors() []prometheus.Collector { return []prometheus.Collector{collector{o}} }

type collector struct{ o *Objects }

// Describe implements prometheus.Collector.
func (collector) Describe(out chan<- *prometheus.Desc) { out <- certificateStates }

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	if c.o.Certs == nil {
		return
	}
	for _, s := range c.o.Certs.States() {
		out <- prometheus.MustNewConstMetric(certificateStates, prometheus.GaugeValue, float64(s.Count), s.Signer, s.State)
	}
}
