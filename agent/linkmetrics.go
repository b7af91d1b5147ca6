package agent

import (
	"math"
	"strconv"
	"time"

	"github.com/islet-edge/islet/metrics/exposition"
)

// linkMetrics are the figures of the way to the control plane, under a kubelet's
// names. A node that stands alone has none.
func (a *agent) linkMetrics() (out []exposition.Sample) {
	if a.cluster == nil {
		return nil
	}
	add := func(kind exposition.Kind, name, help string, v float64, labels ...string) {
		out = append(out, exposition.Sample{Name: name, Help: help, Kind: kind, Labels: labels, Value: v})
	}
	left := func(until time.Time) float64 {
		if until.IsZero() { // there is none, as for a kubelet
			return math.Inf(1)
		}
		return until.Sub(a.link.Now()).Seconds()
	}
	client, serving := a.link.Expiry()
	clientFailed, servingFailed := a.link.Failures()
	add(exposition.Gauge, "kubelet_certificate_manager_client_ttl_seconds", "how long the client certificate is still valid", left(client))
	add(exposition.Counter, "kubelet_certificate_manager_client_expiration_renew_errors", "failures to get a client certificate", float64(clientFailed))
	if a.cfg.Kubelet.ServerTLSBootstrap {
		add(exposition.Gauge, "kubelet_certificate_manager_server_ttl_seconds", "how long the serving certificate is still valid", left(serving))
		add(exposition.Counter, "kubelet_server_expiration_renew_errors", "failures to get a serving certificate", float64(servingFailed))
	}
	host := a.link.Client().Host()
	for o, n := range a.link.Client().Requests() {
		code := "<error>"
		if o.Status != 0 {
			code = strconv.Itoa(o.Status)
		}
		add(exposition.Counter, "rest_client_requests_total", "requests to the API server", float64(n), "code", code, "host", host, "method", o.Method)
	}
	return out
}
