package cni

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
)

// Ready returns nil, or the reason why pods cannot get a network. Before the built-in network is installed, Ready changes nothing. After
// the installation, it checks the sysctls whose changes the kernel does not report, and retries failed repairs. If no listener receives the
// kernel's notices, Ready checks and repairs every part.
func (n *Network) Ready() error {
	list, err := n.checkDirectory(context.Background()) // without a lock, because it may run plugins
	if list == nil && err == nil && !n.currentPhase().installed {
		n.operations.RLock()
		defer n.operations.RUnlock()
		return n.findConflict()
	}
	if list != nil || err != nil {
		return err
	}
	what := partSysctls | n.tracker.failedParts()
	if !n.tracker.listens.Load() {
		what = allParts
	}
	if _, _, err := n.repairParts(what, true); err != nil {
		return err
	}
	if n.hasUnusedAddress() {
		n.operations.RLock()
		defer n.operations.RUnlock()
		_, err = n.ensureBridge()
	}
	return err
}

// CheckPodNetwork returns the reason why no pod can get a network now, or nil. In contrast to Ready, it also returns an error while pods
// move from the built-in network to another one.
func (n *Network) CheckPodNetwork() error { return n.checkPodNetwork(context.Background()) }

func (n *Network) checkPodNetwork(ctx context.Context) error {
	list, err := n.checkDirectory(ctx)
	if err == nil && list != nil && n.currentPhase().isMoving() {
		err = fmt.Errorf("pods are still on the built-in network, which CNI network %s replaces", list.Name)
	}
	return err
}

// checkDirectory reads the CNI directory. If its network can be used, checkDirectory records that it has taken over. It returns the active
// list, and an error if pods cannot use the list now.
func (n *Network) checkDirectory(ctx context.Context) (*libcni.NetworkConfigList, error) {
	list, err := n.plugins.confs.currentList()
	n.logConfigError(list, err)
	if list, err = n.activeList(list, err); list == nil {
		return nil, err
	}
	if err := n.plugins.checkReady(ctx, list); err != nil {
		return list, err
	}
	n.mu.Lock()
	first := !n.moved
	n.moved = true
	n.mu.Unlock()
	if first {
		n.tracker.wakeLoop()
		n.cfg.Log.Info("a CNI configuration provides the pod network", "network", list.Name, "file", n.plugins.confs.activeFile())
		n.wakeRun()
	}
	return list, nil
}

// logConfigError logs, once, that the CNI directory has an error while pods still get a network: by the last valid configuration, or by the
// built-in network.
func (n *Network) logConfigError(list *libcni.NetworkConfigList, err error) {
	switch {
	case n.fallsBack(err) && list == nil:
		err = fmt.Errorf("%w: pods get the built-in network until the configuration can be used", err)
	case list == nil:
		err = nil // Ready also returns the error
	}
	n.mu.Lock()
	before := n.problem
	n.problem = err
	n.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		n.cfg.Log.Warn("the CNI configuration cannot be used", "error", err)
	}
}

// Problem returns the error of the CNI directory while its last valid configuration stays active,
// or nil.
func (n *Network) Problem() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.problem
}

// errNotInitialized has the same text as containerd's error, because tools and people search for this text.
var errNotInitialized = errors.New("cni plugin not initialized")
