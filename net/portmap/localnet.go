package portmap

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/nft"
)

// NeedsLocalnet reports whether one of the ports is open at 127.0.0.1. The pod's replies to a connection from 127.0.0.1 arrive at the
// node's interface to the pod. The kernel accepts packets to 127.0.0.1 there only if route_localnet is set.
func NeedsLocalnet(ports []nft.Port) bool {
	return slices.ContainsFunc(ports, func(p nft.Port) bool {
		return p.To.Addr().Is4() && (!p.HostIP.IsValid() || p.HostIP.IsUnspecified() || p.HostIP.IsLoopback())
	})
}

// SetLocalnet sets or clears route_localnet of an interface. While it is set, hosts behind the interface could reach every service at the
// node's 127.0.0.1. The rule of the chain guard drops such packets. The caller must therefore set route_localnet only after this rule is in
// the kernel, and clear it before removing the rule. A missing interface is not an error.
func SetLocalnet(ns netns.NS, through string, on bool) error {
	err := ns.Set(localnetSysctl(through, on))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func localnetSysctl(through string, on bool) netns.Sysctl {
	value := "0"
	if on {
		value = "1"
	}
	return netns.Sysctl{Name: "ipv4/conf/" + through + "/route_localnet", Value: value}
}

// needsLocalnet reports whether a port of the table needs route_localnet. The caller holds mu.
func (t *Table) needsLocalnet() bool {
	for _, ports := range t.ports {
		if NeedsLocalnet(ports) {
			return true
		}
	}
	return false
}

// Sysctl returns the sysctl route_localnet of the interface, with the value that the ports need.
func (t *Table) Sysctl() netns.Sysctl {
	t.mu.Lock()
	defer t.mu.Unlock()
	return localnetSysctl(t.podInterface, t.needsLocalnet())
}
