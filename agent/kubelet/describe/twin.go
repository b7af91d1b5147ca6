package describe

import (
	"context"
	"errors"

	"github.com/islet-edge/islet/internal/api"
)

// twinProblem describes the problem that another machine has this node's name. It returns nil if there is no such problem.
func (a *Describer) twinProblem() []string {
	t := a.c.Cluster.Twin
	if text := t.Report(); text != "" {
		return []string{text}
	}
	if why := t.HoldReason(); why != "" {
		return []string{
			why + ": pods of the API server that write to volumes outside of this machine do not start. Make " +
				"sure that the other machine is off, or give one of them another name. Then run islet takeover",
		}
	}
	return nil
}

// TakeOver assigns the node's name to this machine.
func (a *Describer) TakeOver(ctx context.Context, force bool) (api.TakenOver, error) {
	if a.c.Cluster == nil {
		return api.TakenOver{}, errors.New("this node does not belong to a cluster, so no other machine can have its name")
	}
	had, err := a.c.Cluster.Twin.TakeOver(ctx, force)
	return api.TakenOver{Had: had}, err
}
