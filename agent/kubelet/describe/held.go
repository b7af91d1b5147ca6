package describe

import (
	"context"

	"github.com/islet-edge/islet/internal/api"
)

// addHeldPods adds the pods on hold to the status.
func (a *Describer) addHeldPods(s *api.Status) {
	c := a.c.Cluster
	h, yes := c.Brake.CurrentHold()
	if !yes {
		return
	}
	s.Held = &api.Held{Pods: len(h.Pods), Since: h.Since, Why: h.Why, Until: c.Brake.HoldDeadline()}
	s.Problems = append(s.Problems, c.Brake.Describe(h))
}

// Accept ends the pods on hold.
func (a *Describer) Accept(ctx context.Context) (api.Accepted, error) {
	if a.c.Cluster == nil {
		return api.Accepted{}, nil
	}
	n, err := a.c.Cluster.Brake.Accept(ctx)
	return api.Accepted{Ended: n}, err
}
