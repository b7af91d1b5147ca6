package cni

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/ipam"
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
	n.know(addresses, live)
	errs = append(errs, n.plugins.reconcile(ctx, alive))
	err = n.restore(addresses)
	n.poke() // pods may have to move
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("reconcile pod network: %w", err)
	}
	return nil
}

// restore makes the built-in network anew where sandboxes are on it, and takes away
// what is left of it where another network has its place. The caller holds all.
func (n *Network) restore(addresses *ipam.Allocator) error {
	for id := range addresses.Leases() {
		if n.own(addresses, id) {
			return n.restoreOwn()
		}
	}
	laid, err := isLaid(n.cfg.Host, n.cfg.Bridge)
	if err != nil {
		return err
	}
	list, _ := n.look() // Ready tells of an error
	switch {
	case laid && list == nil:
		return n.restoreOwn()
	case laid:
		return n.remove()
	}
	return n.ports.Clean() // someone removed the bridge alone
}

func (n *Network) restoreOwn() error {
	_, err := n.ensure()
	_, blocked := n.admit()
	return errors.Join(err, blocked)
}

// know takes the connections of sandboxes that lived before this process.
func (n *Network) know(addresses *ipam.Allocator, live []string) {
	if n.cfg.Sandbox == nil {
		return
	}
	for _, id := range live {
		if !n.own(addresses, id) {
			continue
		}
		if path, pod := n.cfg.Sandbox(id); path != "" {
			n.keep.wired(wire{id: id, path: path, pod: pod})
		}
	}
}
