package cni

import (
	"context"
	"errors"
)

// Clean removes the objects that pods share: the bridge, the nftables table and the rules in other firewalls. The agent calls it on a
// decommissioned node, after the last sandbox was removed.
func (n *Network) Clean(ctx context.Context) error {
	err := errors.Join(n.reconcile(ctx, nil), n.removeEnded(ctx))
	n.operations.Lock()
	defer n.operations.Unlock()
	return errors.Join(err, n.removeObjects())
}
