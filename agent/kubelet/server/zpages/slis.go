package zpages

import (
	"context"
	"net/http"
	"sync"

	"github.com/islet-edge/islet/metrics/exposition"
)

// slis counts the results of the checks of healthz.
// https://kubernetes.io/docs/reference/instrumentation/slis/
type slis struct {
	mu    sync.Mutex
	total map[[2]string]int // by check and status
}

func (c *slis) recordResult(check string, err error) {
	status := "success"
	if err != nil {
		status = "error"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total == nil {
		c.total = map[[2]string]int{}
	}
	c.total[[2]string{check, status}]++
}

func (c *slis) count(check, status string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total[[2]string{check, status}]
}

// serveSLIs runs the checks, and responds with their current results and the numbers of all results so far.
func (p *Pages) serveSLIs(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTime)
	defer cancel()
	var now, ever []exposition.Sample
	for _, c := range p.checks {
		ok := 1.0
		if p.runCheck(ctx, c) != nil {
			ok = 0
		}
		now = append(now, exposition.Sample{Name: "kubernetes_healthcheck", Help: "1 if the health check passed, otherwise 0",
			Labels: []string{"name", c.Name, "type", "healthz"}, Value: ok})
		for _, status := range []string{"error", "success"} {
			if n := p.slis.count(c.Name, status); n > 0 {
				ever = append(ever, exposition.Sample{Name: "kubernetes_healthchecks_total",
					Help: "number of results of health checks", Kind: exposition.Counter,
					Labels: []string{"name", c.Name, "status", status, "type", "healthz"}, Value: float64(n)})
			}
		}
	}
	exposition.Serve(w, r, append(now, ever...))
}
