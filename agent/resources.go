package agent

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/garbage"
	"github.com/islet-edge/islet/agent/plan"
	"github.com/islet-edge/islet/agent/upkeep"
	"github.com/islet-edge/islet/edge/link"
)

// newUpkeep makes what keeps the disk from filling up. An eviction first asks it to reclaim.
func (a *agent) newUpkeep() *upkeep.Upkeep {
	return upkeep.New(upkeep.Config{Config: a.cfg, Containers: a.rt, Store: a.store, Garbage: garbage.Config{
		Pods: a.pods.List, Events: a.events, Now: a.link.Now, Log: a.log, Offline: func() bool { return a.cluster == nil || a.link.State().Phase != link.Up },
		Dead: garbage.Dead{View: a.observer, Sweep: a.sweep, Remove: func(ctx context.Context, uid types.UID, c plan.Container) error {
			return a.executor.Do(ctx, a.input(uid), plan.Action{Op: plan.RemoveContainer, Container: c.Name, ID: c.ID})
		}},
	}})
}
