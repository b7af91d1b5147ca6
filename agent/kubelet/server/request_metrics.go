package server

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests counts the requests on the kubelet's ports. It distinguishes only a few paths and methods, so that a client
// cannot create an unlimited number of metrics.
type requests struct {
	total   *prometheus.CounterVec
	going   *prometheus.GaugeVec
	seconds *prometheus.HistogramVec
}

func newRequests() *requests {
	labels := []string{"long_running", "method", "path", "server_type"}
	return &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "number of requests received",
		}, labels),
		going: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "number of requests in progress",
		}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_http_requests_duration_seconds",
			Help: "duration of requests in seconds", Buckets: prometheus.DefBuckets}, labels),
	}
}

func (q *requests) collectors() []prometheus.Collector {
	return []prometheus.Collector{q.total, q.going, q.seconds}
}

// countRequests returns a handler that counts each request before it calls the handler h.
func (s *Server) countRequests(server string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := pathBucket(r.URL.Path)
		long := path == "exec" || path == "attach" || path == "portForward" || path == "debug"
		labels := []string{strconv.FormatBool(long), methodBucket(r.Method), path, server}
		begin := time.Now()
		s.requestCounts.total.WithLabelValues(labels...).Inc()
		s.requestCounts.going.WithLabelValues(labels...).Inc()
		defer func() { // deferred, because the handler may abort the response with a panic
			s.requestCounts.going.WithLabelValues(labels...).Dec()
			s.requestCounts.seconds.WithLabelValues(labels...).Observe(time.Since(begin).Seconds())
		}()
		h.ServeHTTP(w, r)
	})
}

func methodBucket(m string) string {
	switch m {
	case "OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT":
		return m
	}
	return "other"
}

func pathBucket(path string) string {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	switch root := parts[0]; root {
	case "metrics":
		if len(parts) > 1 && (parts[1] == "cadvisor" || parts[1] == "probes" || parts[1] == "resource") {
			return root + "/" + parts[1]
		}
		return root
	case "healthz", "pods", "stats", "run", "exec", "attach", "portForward", "containerLogs", "configz",
		"runningpods", "allocatedPods", "logs", "debug", "checkpoint":
		return root
	}
	return "other"
}
