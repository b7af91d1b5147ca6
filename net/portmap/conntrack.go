package portmap

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/nft"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ForgetFlows deletes the connection tracking entries of UDP flows to ports that were opened or closed. Without the deletion, the packets
// of a peer would reach the old receiver as long as the peer continues to send. If the kernel does not support the deletion, the entries
// time out.
func ForgetFlows(ns netns.NS, ports []nft.Port) error {
	udp := udpPorts{}
	families := map[netlink.InetFamily]bool{}
	for _, p := range ports {
		if p.Protocol != unix.IPPROTO_UDP {
			continue
		}
		udp[p.HostPort] = true
		if p.To.Addr().Is4() {
			families[unix.AF_INET] = true
		} else {
			families[unix.AF_INET6] = true
		}
	}
	if len(udp) == 0 {
		return nil
	}
	h, err := ns.Conntrack()
	if err != nil {
		return err
	}
	defer h.Close()
	for family := range families {
		_, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, family, udp)
		if err != nil && !isUnsupported(err) && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("forget UDP flows: %w", err)
		}
	}
	return nil
}

func isUnsupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, fs.ErrNotExist)
}

// udpPorts is a filter that matches UDP flows to these ports of the node.
type udpPorts map[uint16]bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (u udpPorts) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	return f.Forward.Protocol == unix.IPPROTO_UDP && u[f.Forward.DstPort]
}
