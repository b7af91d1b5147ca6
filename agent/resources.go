package agent

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/garbage"
	"github.com/islet-edge/islet/agent/plan"
	"github.com/islet-edge/islet/edge/link"
)

// openGarbage makes what gives back the space of images and dead containers.
func (a *agent) openGarbage() *garbage.Garbage {
	c := garbage.Settings(a.cfg, a.rt.Images)
	c.Runtime, c.Pods, c.Known, c.Meta, c.Events, c.Now, c.Log = a.rt.Runtime, a.pods.List, a.rt.Known, a.store, a.events, a.link.Now, a.log
	c.Offline = func() bool { return a.cluster == nil || a.link.State().Phase != link.Up }
	c.Dead = garbage.Dead{View: a.observer, Sweep: a.sweep, Remove: func(ctx context.Context, uid types.UID, c plan.Container) error {
		return a.executor.Do(ctx, a.input(uid), plan.Action{Op: plan.RemoveContainer, Container: c.Name, ID: c.ID})
	}}
	return garbage.New(c)
}
