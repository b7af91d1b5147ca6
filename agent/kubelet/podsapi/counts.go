package podsapi

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
)

// counts are a kubelet's metrics of the pods API.
type counts struct {
	all, list, get, watch *prometheus.CounterVec
	dropped               prometheus.Counter
}

func newCounts() counts {
	requests := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
			[]string{"server_api_version", "status_code"})
	}
	return counts{
		all:   requests("kubelet_pod_requests_total", "calls of the pods API"),
		list:  requests("kubelet_pod_requests_list_total", "calls of ListPods of the pods API"),
		get:   requests("kubelet_pod_requests_get_total", "calls of GetPod of the pods API"),
		watch: requests("kubelet_pod_requests_watch_total", "calls of WatchPods of the pods API that have ended"),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_pod_watch_events_dropped_total",
			Help: "calls of WatchPods of the pods API that islet ended because the client did not read"}),
	}
}

// count counts a call that has ended.
func (c counts) count(method *prometheus.CounterVec, err error) {
	code := status.Code(err).String()
	c.all.WithLabelValues("v1alpha1", code).Inc()
	method.WithLabelValues("v1alpha1", code).Inc()
}

// Collectors returns the metrics.
func (s *Server) Collectors() []prometheus.Collector {
	if s == nil {
		return nil
	}
	return s.counts.collectors()
}

func (c counts) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.all, c.list, c.get, c.watch, c.dropped}
}
