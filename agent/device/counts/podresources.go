package counts

import "github.com/prometheus/client_golang/prometheus"

// apiVersion is the version of the pod resources API that islet serves.
const apiVersion = "v1"

// PodResources contains a kubelet's metrics of the pod resources API.
type PodResources struct {
	total            *prometheus.CounterVec
	requests, errors map[string]*prometheus.CounterVec // by method
}

func newPodResources() *PodResources {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"server_api_version"})
	}
	p := &PodResources{
		total:    counter("kubelet_pod_resources_endpoint_requests_total", "requests to the pod resources API"),
		requests: map[string]*prometheus.CounterVec{}, errors: map[string]*prometheus.CounterVec{},
	}
	p.requests["list"] = counter("kubelet_pod_resources_endpoint_requests_list", "List requests to the pod resources API")
	p.requests["get"] = counter("kubelet_pod_resources_endpoint_requests_get", "Get requests to the pod resources API")
	p.requests["get_allocatable"] = counter("kubelet_pod_resources_endpoint_requests_get_allocatable",
		"GetAllocatableResources requests to the pod resources API")
	p.errors["list"] = counter("kubelet_pod_resources_endpoint_errors_list", "failed List requests to the pod resources API")
	p.errors["get"] = counter("kubelet_pod_resources_endpoint_errors_get", "failed Get requests to the pod resources API")
	p.errors["get_allocatable"] = counter("kubelet_pod_resources_endpoint_errors_get_allocatable",
		"failed GetAllocatableResources requests to the pod resources API")
	return p
}

func (p *PodResources) collectors() (out []prometheus.Collector) {
	out = []prometheus.Collector{p.total}
	for _, method := range []string{"list", "get", "get_allocatable"} {
		out = append(out, p.requests[method], p.errors[method])
	}
	return out
}

// CountRequest implements podresources.Counter.
func (p *PodResources) CountRequest(method string, err error) {
	p.total.WithLabelValues(apiVersion).Inc()
	p.requests[method].WithLabelValues(apiVersion).Inc()
	if err != nil {
		p.errors[method].WithLabelValues(apiVersion).Inc()
	}
}
