package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/update"
)

// openKeeper makes what takes configurations that the node is sent.
func (a *agent) openKeeper() (err error) {
	a.keeper, err = configure.Open(configure.Config{
		Config: a.cfg, Start: a.started, Version: a.version, Newer: update.Newer, Events: a.events, Changed: a.reportNode, End: a.again, Now: a.link.Now, Log: a.log,
		Node: configure.Node{
			Link: a.link.State, Ready: func(ctx context.Context) []string { return a.health.NotReady(ctx) }, Known: func() error { return a.rt.Known() },
			Looked: func() bool { return a.eviction.Looked() }, Pressures: a.machine.Pressures, Spoken: func() bool { return a.pods.Spoken("") }, Pods: func() []*v1.Pod { return a.pods.List() }, Held: func() []types.UID { return a.desired.Held() }, Confirmed: func(p *v1.Pod) bool { return a.probes.Confirmed(p) },
			Reach: func(ctx context.Context) error {
				return a.ports.Reach(ctx, a.machine.IPs(), a.link.ClientCertificate())
			},
		},
	})
	return err
}
