package cni

import (
	"context"
	"errors"
)

// Clean removes what all pods share: the bridge, the nftables table and the rules
// in other firewalls. It is for a node that is given up, after the last sandbox is
// gone.
func (n *Network) Clean(ctx context.Context) error {
	err := n.Reconcile(ctx, nil)
	n.all.Lock()
	defer n.all.Unlock()
	return errors.Join(err, n.remove())
}
