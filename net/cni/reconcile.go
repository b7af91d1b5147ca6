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

// Reconcile frees the leases, veths and host ports of all sandboxes except the live ones, and restores objects that another program
// removed. The agent calls it at start with the IDs of all sandboxes that may have a network. After an error, Reconcile continues with
// the remaining steps. It returns all errors.
//
// For CNI plugins it waits at most defaultStartTime, because no pod starts before Reconcile returns. Some plugins need their daemon, which
// is itself a pod of this node, or the network. Run removes the rest.
func (n *Network) Reconcile(ctx context.Context, live []string) error {
	err := n.reconcile(ctx, live)
	soon, cancel := context.WithTimeout(ctx, n.startTime)
	defer cancel()
	_ = n.removeEnded(soon) // Run repeats what has failed
	return err
}

func (n *Network) reconcile(ctx context.Context, live []string) error {
	n.operations.Lock()
	defer n.operations.Unlock()
	addresses, err := n.loadLeases(ctx)
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
		if vethPattern().MatchString(name) && !veths[name] {
			n.cfg.Log.Info("removing the interface of a deleted sandbox", "interface", name)
			errs = append(errs, bridge.Detach(n.cfg.Host, name))
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(addresses.Leases())) {
		if !alive[owner] {
			n.cfg.Log.Info("releasing the address of a deleted sandbox", "sandbox", owner)
			errs = append(errs, addresses.Release(ctx, owner))
		}
	}
	n.adoptWires(addresses, live)
	errs = append(errs, n.markEnded(isLive))
	err = n.repairBuiltIn(ctx, addresses)
	n.wakeRun() // makes Run check whether pods have to move to another network
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("reconcile pod network: %w", err)
	}
	return nil
}

// repairBuiltIn repairs the built-in network if sandboxes use it. If another network has taken over, it removes the remaining objects of
// the built-in network. The caller holds the write lock that blocks all other operations.
func (n *Network) repairBuiltIn(ctx context.Context, addresses *ipam.Allocator) error {
	for id := range addresses.Leases() {
		if n.isBuiltIn(addresses, id) {
			return n.restoreBuiltIn()
		}
	}
	installed, err := bridgeExists(n.cfg.Host, n.cfg.Bridge)
	if err != nil {
		return err
	}
	list, _ := n.checkDirectory(ctx) // Ready also returns the error
	switch {
	case installed && list == nil:
		return n.restoreBuiltIn()
	case installed:
		return n.removeObjects()
	}
	return n.ports.Clean() // needed if another program has removed only the bridge
}

func (n *Network) restoreBuiltIn() error {
	_, err := n.ensureBridge()
	_, blocked := n.allowForwarding()
	return errors.Join(err, blocked)
}

// adoptWires records the veth pairs of sandboxes that an earlier process created.
func (n *Network) adoptWires(addresses *ipam.Allocator, live []string) {
	if n.cfg.Sandbox == nil {
		return
	}
	for _, id := range live {
		if !n.isBuiltIn(addresses, id) {
			continue
		}
		if path, pod := n.cfg.Sandbox(id); path != "" {
			n.tracker.addWire(vethPair{id: id, path: path, pod: pod})
		}
	}
}
