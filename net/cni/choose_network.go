package cni

import "github.com/containernetworking/cni/libcni"

// A Mode selects the pods' network.
type Mode string

// The modes.
const (
	Auto        Mode = "auto"     // use the first CNI configuration that no other program owns, or else the built-in network
	BuiltInOnly Mode = "built-in" // ignore CNI configurations
	CNIOnly     Mode = "cni"      // use a CNI configuration; without one, pods get no network
)

// activeList returns the list that the mode selects for pods, or nil for the built-in network.
func (n *Network) activeList(list *libcni.NetworkConfigList, err error) (*libcni.NetworkConfigList, error) {
	switch {
	case list != nil:
		return list, nil
	case n.fallsBack(err):
		return nil, nil
	case err == nil && n.cfg.Mode == CNIOnly:
		return nil, errNotInitialized
	}
	return nil, err
}

// fallsBack reports whether the node uses the built-in network because the CNI configuration has an error. In a cluster it returns false,
// because the other nodes expect the pods on the configured network.
func (n *Network) fallsBack(err error) bool { return n.plugins.confs.skipUnusable && err != nil }
