package cluster

import (
	"context"
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// nodeChanged is called with each version of the Node. It must not block, because the Node is not maintained in the meantime. It therefore
// leaves the work that waits for network plugins, the API server or the disk to applyNodes.
func (c *Cluster) nodeChanged(n *v1.Node) {
	c.cfg.Changed(n)
	c.setKnown.Do(func() { close(c.known) })
	select {
	case <-c.nodes: // an older version
	default:
	}
	c.nodes <- n // never blocks, because only one caller sends
}

// applyStoredNode applies the Node that was stored before the agent's start, so that the first pods get addresses from the right networks.
func (c *Cluster) applyStoredNode(ctx context.Context) {
	select {
	case n := <-c.nodes:
		c.applyNode(ctx, n)
	default:
	}
}

// applyNodes applies each version of the Node, or only the last one of several, until ctx ends.
func (c *Cluster) applyNodes(ctx context.Context) error {
	for {
		select {
		case n := <-c.nodes:
			c.applyNode(ctx, n)
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Cluster) applyNode(ctx context.Context, n *v1.Node) {
	c.setNetworks(n.Spec.PodCIDRs)
	c.Brake.Registered(context.WithoutCancel(ctx), n.UID)
}

// setNetworks sets the networks of this node's pods to the podCIDRs, which the control plane has assigned.
func (c *Cluster) setNetworks(podCIDRs []string) {
	var networks []netip.Prefix
	for _, s := range podCIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			c.cfg.Log.Error("the Node's podCIDRs are invalid", "podCIDR", s, "error", err)
			return
		}
		networks = append(networks, p)
	}
	if len(networks) == 0 {
		return
	}
	if err := c.cfg.Networks(context.Background(), networks); err != nil {
		c.cfg.Log.Error("cannot use the Node's podCIDRs", "podCIDRs", podCIDRs, "error", err)
	}
}
