package machine

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	edgenode "github.com/islet-edge/islet/edge/node"
)

// metaBoot is the key under which the machine's boot ID at the last run of the agent is stored.
const metaBoot = "boot"

// Meta stores values by key. *store.Store implements it.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, known bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Started records an event that the agent has started, and another one if the machine was rebooted.
func (a *Reporter) Started(ctx context.Context) {
	a.c.Events.Node(v1.EventTypeNormal, "Starting", "Starting kubelet.")
	if trouble := a.c.Machine.resolvProblem(); trouble != "" {
		a.c.Events.Node(v1.EventTypeWarning, "CheckLimitsForResolvConf", trouble)
	}
	id, err := a.identity()
	if err != nil || id.BootID == "" {
		return
	}
	before, known, err := a.c.Meta.Meta(ctx, metaBoot)
	if err == nil && before != id.BootID {
		err = a.c.Meta.SetMeta(ctx, metaBoot, id.BootID)
	}
	if err != nil {
		a.c.Log.Warn("cannot find out whether the machine was rebooted", "error", err)
	} else if known && before != id.BootID {
		a.c.Log.Info("the machine was rebooted", "boot", id.BootID)
		a.c.Events.Node(v1.EventTypeWarning, "Rebooted",
			fmt.Sprintf("Node %s has been rebooted, boot id: %s", a.c.Machine.Name(), id.BootID))
	}
}

// reportConditions records an event for each condition of the node that has changed since the last call.
func (a *Reporter) reportConditions(f *edgenode.Facts) {
	for _, c := range []struct {
		now     bool
		yes, no string
	}{
		{f.MemoryPressure, "NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
		{f.DiskPressure, "NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		{f.PIDPressure, "NodeHasInsufficientPID", "NodeHasSufficientPID"},
		{len(f.NotReady) == 0, "NodeReady", "NodeNotReady"},
	} {
		reason := c.no
		if c.now {
			reason = c.yes
		}
		if !a.reportedConditions[reason] {
			a.reportedConditions[c.yes], a.reportedConditions[c.no] = c.now, !c.now
			a.recordEvent(reason)
		}
	}
}

func (a *Reporter) recordEvent(reason string) {
	a.c.Events.Node(v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", a.c.Machine.Name(), reason))
}

// Schedulable records an event if the node was cordoned or uncordoned.
func (a *Reporter) Schedulable(yes bool) {
	a.mu.Lock()
	before := a.schedulable
	a.schedulable = &yes
	a.mu.Unlock()
	switch {
	case before == nil || *before == yes:
	case yes:
		a.recordEvent("NodeSchedulable")
	default:
		a.recordEvent("NodeNotSchedulable")
	}
}
