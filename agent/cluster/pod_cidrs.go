package cluster

import (
	"context"
	"net/netip"
)

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
