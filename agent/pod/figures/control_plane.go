package figures

import (
	"math"
	"strconv"
	"time"

	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/metrics/exposition"
)

// Link returns metrics of the link to the control plane. Their names are the same as in a kubelet. If the control plane
// issues the serving certificate, the parameter serving is true, and the result includes the metrics of this
// certificate. One metric is the number of dropped events.
func Link(l *link.Link, serving bool, dropped int) (out []exposition.Sample) {
	add := func(kind exposition.Kind, name, help string, v float64, labels ...string) {
		out = append(out, exposition.Sample{Name: name, Help: help, Kind: kind, Labels: labels, Value: v})
	}
	left := func(until time.Time) float64 {
		if until.IsZero() { // no certificate: the same value as a kubelet's
			return math.Inf(1)
		}
		return until.Sub(l.Now()).Seconds()
	}
	client, server := l.Expiry()
	clientFailed, servingFailed := l.Failures()
	add(exposition.Gauge, "kubelet_certificate_manager_client_ttl_seconds", "remaining validity of the client certificate in seconds",
		left(client))
	add(exposition.Counter, "kubelet_certificate_manager_client_expiration_renew_errors",
		"number of failed requests for a client certificate", float64(clientFailed))
	if serving {
		add(exposition.Gauge, "kubelet_certificate_manager_server_ttl_seconds",
			"remaining validity of the serving certificate in seconds", left(server))
		add(exposition.Counter, "kubelet_server_expiration_renew_errors", "number of failed requests for a serving certificate",
			float64(servingFailed))
	}
	add(exposition.Counter, "islet_events_dropped_total",
		"number of events that were dropped before they were sent to the API server", float64(dropped))
	host := l.Client().Host()
	for o, n := range l.Client().Requests() {
		code := "<error>"
		if o.Status != 0 {
			code = strconv.Itoa(o.Status)
		}
		add(exposition.Counter, "rest_client_requests_total", "number of requests to the API server", float64(n),
			"code", code, "host", host, "method", o.Method)
	}
	return out
}
