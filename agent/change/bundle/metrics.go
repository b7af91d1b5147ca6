package bundle

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Collectors returns the metrics of bundles. They are absent on a node that never had a bundle.
func (n *Node) Collectors() []prometheus.Collector { return []prometheus.Collector{collector{n}} }

type collector struct{ n *Node }

var (
	info = prometheus.NewDesc("islet_bundle_info",
		"The bundles that the node keeps, by their state: current, trial or previous. The value is the number of the bundle.",
		[]string{"name", "state"}, nil)
	ended = prometheus.NewDesc("islet_bundle_result",
		"How the last bundle ended: kept, failed or reverted. The value is the time, in seconds since the epoch.",
		[]string{"name", "result"}, nil)
)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- info
	ch <- ended
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	r := c.n.now()
	send := func(desc *prometheus.Desc, value float64, name, label string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, name, label)
	}
	if r.Trial != nil {
		send(info, float64(r.Trial.Number), r.Trial.Name, "trial")
	}
	if r.Current != nil {
		send(info, float64(r.Current.Number), r.Current.Name, "current")
	}
	if r.Previous != nil {
		send(info, float64(r.Previous.Number), r.Previous.Name, "previous")
	}
	if o := r.Last; o != nil {
		send(ended, float64(o.Time.Unix()), o.Name, o.Result)
	}
}
