package cni

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/islet-edge/islet/net/bridge"
)

// Reconcile is called at start with the IDs of all sandboxes that may still have
// a network. It frees the leases, veths and host ports of all others, and makes
// anew what someone removed meanwhile. An error means that something could not be
// done; the rest is done all the same.
func (n *Network) Reconcile(ctx context.Context, live []string) error {
	n.all.Lock()
	defer n.all.Unlock()
	addresses, err := n.leases(ctx)
	if err != nil {
		return fmt.Errorf("reconcile pod network: %w", err)
	}
	alive := map[string]bool{}
	veths := map[string]bool{}
	for _, id := range live {
		alive[id] = true
		veths[vethName(id)] = true
	}
	isLive := func(id string) bool { return alive[id] }
	errs := []error{n.ports.Load(isLive)}

	plugged, err := bridge.Ports(n.cfg.Host, n.cfg.Bridge)
	errs = append(errs, err)
	for _, name := range plugged {
		if vethPattern.MatchString(name) && !veths[name] {
			n.cfg.Log.Info("remove the interface of a sandbox that is gone", "interface", name)
			errs = append(errs, bridge.Detach(n.cfg.Host, name))
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(addresses.Leases())) {
		if !alive[owner] {
			n.cfg.Log.Info("release the address of a sandbox that is gone", "sandbox", owner)
			errs = append(errs, addresses.Release(ctx, owner))
		}
	}
	errs = append(errs, n.plugins.reconcile(ctx, alive))
	list, err := n.plugins.confs.current()
	if err == nil && (list == nil || len(addresses.Leases()) > 0) { // else islet's own network is not used
		_, err = n.ensure()
		err = errors.Join(err, n.admit())
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("reconcile pod network: %w", err)
	}
	return nil
}
