package machine

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	edgenode "github.com/islet-edge/islet/edge/node"
)

// metaBoot is the key under which the store has the boot of the machine that the
// agent ran in last.
const metaBoot = "boot"

// Meta keeps a value. *store.Store is one.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, known bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Started tells that the agent has started, and if so that the machine has.
func (a *Reporter) Started(ctx context.Context) {
	a.c.Events.Node(v1.EventTypeNormal, "Starting", "Starting kubelet.")
	if trouble := a.c.Machine.resolvTrouble(); trouble != "" {
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
		a.c.Log.Warn("whether the machine was rebooted is not known", "error", err)
	} else if known && before != id.BootID {
		a.c.Log.Info("the machine was rebooted", "boot", id.BootID)
		a.c.Events.Node(v1.EventTypeWarning, "Rebooted",
			fmt.Sprintf("Node %s has been rebooted, boot id: %s", a.c.Machine.Name(), id.BootID))
	}
}

// conditions tells which conditions of the node are others than those told before.
func (a *Reporter) conditions(f *edgenode.Facts) {
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
		if !a.told[reason] {
			a.told[c.yes], a.told[c.no] = c.now, !c.now
			a.tell(reason)
		}
	}
}

func (a *Reporter) tell(reason string) {
	a.c.Events.Node(v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", a.c.Machine.Name(), reason))
}

// Schedulable tells that somebody cordoned the node, or let pods on it again.
func (a *Reporter) Schedulable(yes bool) {
	a.mu.Lock()
	before := a.open
	a.open = &yes
	a.mu.Unlock()
	switch {
	case before == nil || *before == yes:
	case yes:
		a.tell("NodeSchedulable")
	default:
		a.tell("NodeNotSchedulable")
	}
}
