package cni

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/ipam"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/nft"
)

// A Mode says which network pods get.
type Mode string

// The modes.
const (
	Auto        Mode = "auto"     // a CNI configuration where there is one that is no other program's, else the built-in network
	BuiltInOnly Mode = "built-in" // CNI configurations are not looked at
	CNIOnly     Mode = "cni"      // no network before there is a CNI configuration
)

// moveTime is how long pods get to leave the built-in network of themselves. Then
// it is taken away under those that are left: until it is gone, no pod can start on
// the new one, whose bridge may have the same addresses.
const moveTime = 30 * time.Second

// errNotInitialized is containerd's, which tools and people look for.
var errNotInitialized = errors.New("cni plugin not initialized")

// inForce gives the list that pods get their network from; nil: the built-in network is
// theirs.
func (n *Network) inForce(list *libcni.NetworkConfigList, err error) (*libcni.NetworkConfigList, error) {
	switch {
	case list != nil:
		return list, nil
	case n.stepsIn(err):
		return nil, nil
	case err == nil && n.cfg.Mode == CNIOnly:
		return nil, errNotInitialized
	}
	return nil, err
}

// look reads the directory and notes when its network takes over. It returns the
// list in force, and why pods cannot get a network from it.
func (n *Network) look() (*libcni.NetworkConfigList, error) {
	list, err := n.plugins.confs.current()
	n.report(list, err)
	if list, err = n.inForce(list, err); list == nil {
		return nil, err
	}
	if err := n.plugins.ready(list); err != nil {
		return list, err
	}
	n.mu.Lock()
	news := !n.moved
	n.moved = true
	n.mu.Unlock()
	if news {
		n.keep.poke()
		n.cfg.Log.Info("the pod network is a CNI configuration's", "network", list.Name, "file", n.plugins.confs.file())
		n.poke()
	}
	return list, nil
}

// report says once what is wrong with the directory while a former configuration
// is in force.
func (n *Network) report(list *libcni.NetworkConfigList, err error) {
	switch {
	case n.stepsIn(err) && list == nil:
		err = fmt.Errorf("%w: pods get the built-in network until the configuration can be used", err)
	case list == nil:
		err = nil // then the network is not ready, which says it
	}
	n.mu.Lock()
	before := n.problem
	n.problem = err
	n.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		n.cfg.Log.Warn("the CNI configuration cannot be used", "error", err)
	}
}

// Problem is what is wrong with the CNI directory while its last good
// configuration stays in use, or nil.
func (n *Network) Problem() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.problem
}

func (n *Network) poke() {
	select {
	case n.poked <- struct{}{}:
	default:
	}
}

// Stale reports whether a sandbox is on the built-in network though a CNI
// configuration has taken over, or has lost its connection for good: its pod is to get
// a new one.
func (n *Network) Stale(id string) bool {
	if n.keep.isLost(id) {
		return true
	}
	n.mu.Lock()
	moved, addresses := n.moved, n.addresses
	n.mu.Unlock()
	return moved && addresses != nil && n.own(addresses, id)
}

// own reports whether a sandbox is on the built-in network. An address may be kept
// for a sandbox of another network too, where the lease store was lost.
func (n *Network) own(addresses *ipam.Allocator, id string) bool {
	if !addresses.Has(id) {
		return false
	}
	a, err := n.plugins.attachments.read(id)
	return a == nil && err == nil
}

// Admit returns why no pod may be given a network now, or nil. It differs from
// Ready while pods move from the built-in network.
func (n *Network) Admit() error {
	list, err := n.look()
	if err == nil && list != nil && n.now().moving() {
		err = fmt.Errorf("pods still leave the built-in network, whose place CNI network %s takes", list.Name)
	}
	return err
}

// A place says where the node is on its way from the built-in network to another.
type place struct {
	laid  bool // the built-in network is on the node
	moved bool // a CNI configuration has taken over; for good
}

func (p place) moving() bool { return p.laid && p.moved }

func (n *Network) now() place {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.place
}

func (n *Network) setLaid(yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.laid, n.found = yes, foundation{}
	n.keep.poke()
}

// move takes the built-in network away when another one has taken over and no pod
// is on it any more, or with force. It reports whether it did.
func (n *Network) move(force bool) (gone bool) {
	if !n.now().moving() {
		return false
	}
	left, err := n.withdraw(force)
	if err != nil {
		n.cfg.Log.Error("the built-in network cannot be taken away", "error", err)
	}
	if left > 0 && force {
		n.cfg.Log.Warn("pods did not leave the built-in network in time, it is gone under them", "pods", left, "after", moveTime)
	}
	return !n.now().laid
}

// withdraw removes the built-in network from the node and returns how many
// sandboxes are on it. While there are some it does nothing unless forced. Their
// leases stay until each is torn down, so that they go on counting as stale.
func (n *Network) withdraw(force bool) (left int, err error) {
	n.all.Lock()
	defer n.all.Unlock()
	addresses, err := n.leases(context.Background())
	if err != nil {
		return 0, err
	}
	for id := range addresses.Leases() {
		if n.own(addresses, id) {
			left++
		}
	}
	if left > 0 && !force {
		return left, nil
	}
	if err := n.remove(); err != nil {
		return left, err
	}
	n.setLaid(false)
	return left, nil
}

// remove takes everything of the built-in network off the node. The bridge goes
// last: while it is there, there may be more.
func (n *Network) remove() error {
	veths, err := bridge.Ports(n.cfg.Host, n.cfg.Bridge)
	errs := []error{err}
	for _, name := range veths {
		if vethPattern.MatchString(name) {
			errs = append(errs, bridge.Detach(n.cfg.Host, name))
		}
	}
	errs = append(errs, n.ports.Clean(), nft.Dismiss(n.cfg.Host))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return bridge.Detach(n.cfg.Host, n.cfg.Bridge)
}

// isLaid reports whether the node has the bridge of the built-in network.
func isLaid(host netns.NS, name string) (bool, error) {
	_, err := bridge.Find(host, name)
	if bridge.NotFound(err) {
		return false, nil
	}
	return err == nil, err
}
