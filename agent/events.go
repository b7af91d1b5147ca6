package agent

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	edgenode "github.com/islet-edge/islet/edge/node"
	"github.com/islet-edge/islet/edge/outbox"
	"github.com/islet-edge/islet/metrics/host"
)

// metaBoot is the key under which the store has the boot of the machine that the
// agent ran in last.
const metaBoot = "boot"

// newEvents makes what takes the events of pods and of the node. Those of a node that
// stands alone are for islet describe and islet status only.
func (a *agent) newEvents() (*outbox.Events, error) {
	k := &a.cfg.Kubelet
	c := outbox.EventsConfig{Node: a.cfg.Node.Name, QPS: float64(*k.EventRecordQPS), Burst: int(k.EventBurst), Now: a.link.Now, Log: a.log}
	if a.joins() {
		c.Client, c.Retry = a.link.Client(), a.link.Changed()
	}
	return outbox.NewEvents(c)
}

// tellStart tells that the agent has started, and if so that the machine has.
func (a *agent) tellStart(ctx context.Context) {
	a.events.Node(v1.EventTypeNormal, "Starting", "Starting kubelet.")
	id, err := host.New(host.Config{}).Identity(ctx)
	if err != nil || id.BootID == "" {
		return
	}
	before, known, err := a.store.Meta(ctx, metaBoot)
	if err == nil && before != id.BootID {
		err = a.store.SetMeta(ctx, metaBoot, id.BootID)
	}
	if err != nil {
		a.log.Warn("whether the machine was rebooted is not known", "error", err)
	} else if known && before != id.BootID {
		a.log.Info("the machine was rebooted", "boot", id.BootID)
		a.events.Node(v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", a.cfg.Node.Name, id.BootID))
	}
}

// tellConditions tells which conditions of the node are others than those told before.
func (a *agent) tellConditions(f *edgenode.Facts, told map[string]bool) {
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
		if !told[reason] {
			told[c.yes], told[c.no] = c.now, !c.now
			a.tellNode(reason)
		}
	}
}

func (a *agent) tellNode(reason string) {
	a.events.Node(v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", a.cfg.Node.Name, reason))
}

// tellSchedulable tells that somebody cordoned the node, or let pods on it again.
func (a *agent) tellSchedulable(yes bool) {
	before, known := a.node.setSchedulable(yes)
	switch {
	case !known || before == yes:
	case yes:
		a.tellNode("NodeSchedulable")
	default:
		a.tellNode("NodeNotSchedulable")
	}
}
