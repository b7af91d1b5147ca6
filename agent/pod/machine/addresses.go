package machine

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/net/address"
	"github.com/islet-edge/islet/net/netns"
)

// IPs returns the addresses of the node.
func (n *Machine) IPs() (out []netip.Addr) {
	for _, s := range n.Now().IPs {
		if ip, err := netip.ParseAddr(s); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

// findAddresses returns the addresses from --node-ip. Without the flag, it returns the addresses of the default route (see
// package address). If the kernel does not respond, it returns the last addresses that were found.
func (n *Machine) findAddresses() (out []string) {
	for _, ip := range n.cfg.Node.IPs {
		if !ip.IsUnspecified() {
			out = append(out, ip.String())
		}
	}
	if len(out) > 0 {
		return out
	}
	found, err := address.Find(netns.NS{}, n.foundIPs, n.cfg.Edge.BridgeName)
	if err != nil {
		found = n.foundIPs
	}
	n.foundIPs = found
	for _, ip := range found {
		out = append(out, ip.String())
	}
	if i := n.cfg.Node.IPs; len(i) > 0 && i[0].Is6() { // --node-ip=::
		slices.Reverse(out)
	}
	return out
}

// reportedIPs returns the addresses that the Node reports. With an external cloud provider and without --node-ip it
// returns none, because the provider then sets the addresses.
func (n *Machine) reportedIPs(ips []string) []string {
	if n.cfg.Node.CloudProvider == "external" && len(n.cfg.Node.IPs) == 0 {
		return nil
	}
	return ips
}

func nodeAddresses(ips []string, name string) (out []v1.NodeAddress) {
	for _, ip := range ips {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: name})
}
