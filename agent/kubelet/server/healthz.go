package server

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

// routeHealthz adds the path /healthz and a path for each check. Every Kubernetes component has these paths.
// https://kubernetes.io/docs/reference/using-api/health-checks/
func (s *Server) routeHealthz(m mux) {
	fine := func(context.Context) error { return nil }
	checks := append([]Check{{"ping", fine}, {"log", fine}}, s.Checks...)
	m.HandleFunc("GET /metrics/slis", func(w http.ResponseWriter, r *http.Request) { s.serveSLIs(w, r, checks) })
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { s.healthz(w, r, checks) })
	for _, c := range checks {
		m.HandleFunc("GET /healthz/"+c.Name, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), checkTime)
			defer cancel()
			if err := s.runCheck(ctx, c); err != nil {
				response.WriteError(w, fmt.Errorf("internal server error: %w", err))
				return
			}
			fmt.Fprint(w, "ok")
		})
	}
}

// healthz runs all checks except those in ?exclude=. The response does not contain the reasons of failures, which are
// available at the paths of the checks.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request, checks []Check) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTime)
	defer cancel()
	query := r.URL.Query()
	without := map[string]bool{}
	for _, name := range query["exclude"] {
		without[name] = true
	}
	var out strings.Builder
	failed := false
	for _, c := range checks {
		if without[c.Name] {
			fmt.Fprintf(&out, "[+]%s excluded: ok\n", c.Name)
		} else if err := s.runCheck(ctx, c); err != nil {
			s.Log.Warn("not healthy", "check", c.Name, "error", err)
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
func (s *Server) runCheck(ctx context.Context, c Check) error {
	err := c.Check(ctx)
	s.slis.recordResult(c.Name, err)
	return err
}
