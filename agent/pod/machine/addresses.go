package machine

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// metaAddresses is the key under which the last addresses of the node are stored.
const metaAddresses = "addresses"

// maxAddresses is the maximum number of stored addresses.
const maxAddresses = 8

// IPs returns the addresses that the node has now.
func (n *Machine) IPs() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refresh(nodeFresh)
	return n.present
}

// PresentIPs returns the addresses that the node has now. While the machine has no address, PresentIPs returns none, and Now returns the
// last addresses.
func (n *Machine) PresentIPs() []string { return texts(n.IPs()) }

// findAddresses sets the present addresses to the addresses of --node-ip. Without the flag, it sets them to the addresses of the default
// route (see package address). If the kernel does not respond, findAddresses changes nothing. If the machine has no address now, the field
// known does not change: the pods keep the addresses that a kubelet would read from the Node object.
func (n *Machine) findAddresses() {
	set := slices.DeleteFunc(slices.Clone(n.cfg.Node.IPs), netip.Addr.IsUnspecified)
	if len(set) > 0 {
		n.present, n.known = set, set
		return
	}
	var found []netip.Addr
	if found, n.findErr = n.find(n.known); n.findErr != nil {
		return
	}
	if i := n.cfg.Node.IPs; len(i) > 0 && i[0].Is6() { // --node-ip=::
		slices.Reverse(found)
	}
	n.present = found
	if len(found) > 0 {
		n.known = found
	}
}

func texts(ips []netip.Addr) (out []string) {
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}

// loadAddresses loads the addresses that an earlier run of the agent has stored. It skips text that is not an address.
func (n *Machine) loadAddresses(ctx context.Context) error {
	if n.meta == nil {
		return nil
	}
	text, _, err := n.meta.Meta(ctx, metaAddresses)
	if err != nil {
		return err
	}
	for _, s := range strings.Fields(text) {
		if ip, err := netip.ParseAddr(s); err == nil && len(n.known) < maxAddresses {
			n.known = append(n.known, ip)
		}
	}
	return nil
}

// storeAddresses stores the known addresses if they have changed.
func (n *Machine) storeAddresses(ctx context.Context) error {
	n.mu.Lock()
	text := strings.Join(texts(n.known), " ")
	n.mu.Unlock()
	if n.meta == nil || text == "" {
		return nil
	}
	if before, _, err := n.meta.Meta(ctx, metaAddresses); err != nil || before == text {
		return err
	}
	return n.meta.SetMeta(ctx, metaAddresses, text)
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
