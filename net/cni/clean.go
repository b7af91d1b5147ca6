package cni

import (
	"context"
	"errors"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/nft"
)

// Clean removes what all pods share: the bridge, the nftables table and the rules
// in other firewalls. It is for a node that is given up, after the last sandbox is
// gone.
func (n *Network) Clean(ctx context.Context) error {
	return errors.Join(n.Reconcile(ctx, nil), n.ports.Clean(), nft.Dismiss(n.cfg.Host), bridge.Detach(n.cfg.Host, n.cfg.Bridge))
}
