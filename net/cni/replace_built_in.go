package cni

import (
	"context"
	"errors"
	"time"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/ipam"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/nft"
)

// moveTime is the maximum time that pods may stay on the built-in network after another network has taken over. After moveTime, the
// built-in network is removed even if pods still use it. Before the removal, no pod can start on the new network, because both bridges
// may have the same addresses.
const moveTime = 30 * time.Second

func (n *Network) wakeRun() {
	select {
	case n.checkMoved <- struct{}{}:
	default:
	}
}

// IsStale reports whether a sandbox must be replaced. This is the case if its connection cannot be repaired, or if a CNI configuration has
// taken over from the built-in network.
func (n *Network) IsStale(id string) bool {
	if n.tracker.isLost(id) {
		return true
	}
	n.mu.Lock()
	moved, addresses := n.moved, n.addresses
	n.mu.Unlock()
	return moved && addresses != nil && n.isBuiltIn(addresses, id)
}

// isBuiltIn reports whether a sandbox is on the built-in network. A lease alone does not prove this: after a loss of the lease store, an
// address may be leased to a sandbox that is on another network.
func (n *Network) isBuiltIn(addresses *ipam.Allocator, id string) bool {
	if !addresses.HasAddress(id) {
		return false
	}
	a, err := n.plugins.attachments.read(id)
	return a == nil && err == nil
}

// A phase describes the move of the node from the built-in network to another one.
type phase struct {
	installed bool // the built-in network is installed on the node
	moved     bool // a CNI configuration has taken over; this never becomes false again
}

func (p phase) isMoving() bool { return p.installed && p.moved }

func (n *Network) currentPhase() phase {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.phase
}

func (n *Network) setInstalled(yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.installed, n.ensured = yes, ensuredBridge{}
	n.tracker.wakeLoop()
}

// finishMove removes the built-in network after another one has taken over and the last pod has left. If force is true, it does not wait
// for the pods. It reports whether the built-in network is removed.
func (n *Network) finishMove(force bool) (gone bool) {
	if !n.currentPhase().isMoving() {
		return false
	}
	left, err := n.removeUnused(force)
	if err != nil {
		n.cfg.Log.Error("cannot remove the built-in network", "error", err)
	}
	if left > 0 && force {
		n.cfg.Log.Warn("removed the built-in network although pods were still on it", "pods", left, "after", moveTime)
	}
	return !n.currentPhase().installed
}

// removeUnused removes the built-in network and returns the number of sandboxes that still use it. If there are such sandboxes, it removes
// the network only if force is true. The leases of these sandboxes stay until teardown, so IsStale still returns true for these sandboxes.
func (n *Network) removeUnused(force bool) (left int, err error) {
	n.operations.Lock()
	defer n.operations.Unlock()
	addresses, err := n.loadLeases(context.Background())
	if err != nil {
		return 0, err
	}
	for id := range addresses.Leases() {
		if n.isBuiltIn(addresses, id) {
			left++
		}
	}
	if left > 0 && !force {
		return left, nil
	}
	if err := n.removeObjects(); err != nil {
		return left, err
	}
	n.setInstalled(false)
	return left, nil
}

// removeObjects removes all objects of the built-in network, the bridge last. If the removal is interrupted, the bridge still exists,
// which shows that another call is needed.
func (n *Network) removeObjects() error {
	veths, err := bridge.Ports(n.cfg.Host, n.cfg.Bridge)
	errs := []error{err}
	for _, name := range veths {
		if vethPattern().MatchString(name) {
			errs = append(errs, bridge.Detach(n.cfg.Host, name))
		}
	}
	errs = append(errs, n.ports.Clean(), nft.RemoveForwarding(n.cfg.Host))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return bridge.Detach(n.cfg.Host, n.cfg.Bridge)
}

// bridgeExists reports whether the bridge of the built-in network exists.
func bridgeExists(host netns.NS, name string) (bool, error) {
	_, err := bridge.Find(host, name)
	if bridge.NotFound(err) {
		return false, nil
	}
	return err == nil, err
}
