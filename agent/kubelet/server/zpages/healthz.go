package zpages

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
)

// A Check is one check of healthz.
type Check struct {
	Name string
	// Check returns the problem, or nil if there is none. It must return soon after ctx has ended.
	Check func(ctx context.Context) error
}

// checkTime is the timeout of all checks of one request.
const checkTime = 5 * time.Second

// HealthPaths returns the handlers of /healthz, of a path for each check, and of /metrics/slis. Every Kubernetes component has these paths.
// https://kubernetes.io/docs/reference/using-api/health-checks/
func (p *Pages) HealthPaths() map[string]http.HandlerFunc {
	paths := map[string]http.HandlerFunc{"GET /metrics/slis": p.serveSLIs, "GET /healthz": p.healthz}
	for _, c := range p.checks {
		paths["GET /healthz/"+c.Name] = func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), checkTime)
			defer cancel()
			if err := p.runCheck(ctx, c); err != nil {
				response.WriteError(w, fmt.Errorf("internal server error: %w", err))
				return
			}
			fmt.Fprint(w, "ok")
		}
	}
	return paths
}

// healthz runs all checks except the checks in ?exclude=. The response does not contain the reasons for failures, which are
// available at the paths of the checks.
func (p *Pages) healthz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTime)
	defer cancel()
	query := r.URL.Query()
	without := map[string]bool{}
	for _, name := range query["exclude"] {
		without[name] = true
	}
	var out strings.Builder
	failed := false
	for _, c := range p.checks {
		if without[c.Name] {
			fmt.Fprintf(&out, "[+]%s excluded: ok\n", c.Name)
		} else if err := p.runCheck(ctx, c); err != nil {
			p.Log.Warn("not healthy", "check", c.Name, "error", err)
			failed = true
			fmt.Fprintf(&out, "[-]%s failed: reason withheld\n", c.Name)
		} else {
			fmt.Fprintf(&out, "[+]%s ok\n", c.Name)
		}
	}
	switch {
	case failed:
		http.Error(w, out.String()+"healthz check failed", http.StatusInternalServerError)
	case query.Has("verbose"):
		fmt.Fprint(w, out.String()+"healthz check passed\n")
	default:
		fmt.Fprint(w, "ok")
	}
}

// runCheck runs a check and counts its result.
func (p *Pages) runCheck(ctx context.Context, c Check) error {
	err := c.Check(ctx)
	p.slis.recordResult(c.Name, err)
	return err
}
