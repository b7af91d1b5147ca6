package figures

import "github.com/prometheus/client_golang/prometheus"

// Working returns the number of pods by the values of the labels lifecycle, config and static.
type Working func() map[[3]string]int

// Restarted returns how many pods have ended and started again under their UID since the agent started.
type Restarted func() (static, fromAPI int)

var (
	workingPods = prometheus.NewDesc("kubelet_working_pods",
		"number of pods by what the node does with them. An orphan was removed from its source, or by force from the API server, "+
			"and has not ended",
		[]string{"lifecycle", "config", "static"}, nil)
	restartedPods = prometheus.NewDesc("kubelet_restarted_pods_total",
		"number of pods that were removed and added again with the same UID before they had ended", []string{"static"}, nil)
)

// workingKeys are the series that always exist, as in a kubelet.
func workingKeys(yield func([3]string) bool) {
	for _, lifecycle := range []string{"sync", "terminating", "terminated"} {
		for _, where := range [][2]string{
			{"desired", "true"}, {"desired", ""}, {"orphan", "true"}, {"orphan", ""}, {"runtime_only", "unknown"},
		} {
			if !yield([3]string{lifecycle, where[0], where[1]}) {
				return
			}
		}
	}
}

// Describe implements prometheus.Collector.
func (Working) Describe(out chan<- *prometheus.Desc) { out <- workingPods }

// Collect implements prometheus.Collector.
func (w Working) Collect(out chan<- prometheus.Metric) {
	counts := w()
	for key := range workingKeys {
		out <- prometheus.MustNewConstMetric(workingPods, prometheus.GaugeValue, float64(counts[key]), key[:]...)
	}
}

// Describe implements prometheus.Collector.
func (Restarted) Describe(out chan<- *prometheus.Desc) { out <- restartedPods }

// Collect implements prometheus.Collector.
func (r Restarted) Collect(out chan<- prometheus.Metric) {
	static, fromAPI := r()
	out <- prometheus.MustNewConstMetric(restartedPods, prometheus.CounterValue, float64(static), "true")
	out <- prometheus.MustNewConstMetric(restartedPods, prometheus.CounterValue, float64(fromAPI), "")
}
