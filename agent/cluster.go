package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/cluster"
)

// clusterParts contains the parts that connect the pods to the API server. They are nil if the node has no API server.
type clusterParts struct {
	*podParts
	follower *configure.Follower
	cluster  *cluster.Cluster
}

func openCluster(ctx context.Context, p *podParts) (c *clusterParts, err error) {
	c = &clusterParts{podParts: p}
	if c.cfg.Standalone() {
		return c, nil
	}
	if c.follower, err = configure.NewFollower(c.keeper, c.link.Client(), c.link.Changed(), c.log); err != nil {
		return nil, err
	}
	c.laterParts.objects.set(c.objects)
	if c.cluster, err = cluster.Open(ctx, cluster.Config{
		Config: c.cfg, Link: c.link, Twin: c.twin, Released: c.laterParts.retryPods, Store: c.store, Objects: c.objects, Events: c.events,
		Pods: c.pods, Desired: c.desired, Sink: c.sources.Sink(), SourcesReported: c.sources.OthersSpoken, Facts: c.reporter.Facts,
		Annotations: c.keeper.Annotations, Addresses: c.machine.PresentIPs, OnPeriodicTask: c.settler.TaskRan, Changed: c.nodeChanged,
		Networks: c.rt.Network.SetPodCIDRs, Startup: c.figures.Startup, Held: c.events.Record, Left: c.keeper.RestartAlone, Log: c.log,
	}); err != nil {
		return nil, err
	}
	c.laterParts.cluster.set(c.cluster)
	c.pods.Connect(c.cluster.Outbox, c.cluster.Node)
	return c, nil
}

// nodeChanged applies the labels, taints and extended resources of the Node object that the API server has sent.
func (c *clusterParts) nodeChanged(n *v1.Node) {
	if c.machine.SetNode(n.Labels, n.Spec.Taints, n.Status.Capacity) {
		c.pods.NodeChanged()
	}
	c.laterParts.claims.get().NodeChanged()
	c.follower.Node(n)
	c.reporter.Schedulable(!n.Spec.Unschedulable)
}
