package cni

import (
	"context"
	"errors"
)

// Clean removes everything that pods share: the bridge, the nftables table and the rules in other
// firewalls. It is called on a decommissioned node, after the last sandbox was removed.
func (n *Network) Clean(ctx context.Context) error {
	err := n.Reconcile(ctx, nil)
	n.all.Lock()
	defer n.all.Unlock()
	return errors.Join(err, n.remove())
}
