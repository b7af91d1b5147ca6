package portmap

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/islet-edge/islet/net/nft"
	"golang.org/x/sys/unix"
)

// Mapping maps a port of the node to a port of the pod. Its JSON form is defined by the CNI capability portMappings.
type Mapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"` // tcp (or empty), udp or sctp
	HostIP        string `json:"hostIP,omitempty"`
}

// Ports returns the ports for a pod's addresses. It skips a mapping without a host port. A mapping with a HostIP applies only to the IP
// family of HostIP. If the pod has no address of that family, another mapping must open the same port in a family that the pod has: a
// manifest for nodes with and without IPv6 has both.
func Ports(owner string, mappings []Mapping, pod []netip.Addr) ([]nft.Port, error) {
	var ports []nft.Port
	var skipped []nft.Port // mappings for an IP family that the pod does not have
	for _, m := range mappings {
		if m.HostPort == 0 {
			continue
		}
		protocol, err := m.protocolNumber()
		if err != nil {
			return nil, err
		}
		if m.HostPort < 0 || m.HostPort > 65535 || m.ContainerPort <= 0 || m.ContainerPort > 65535 {
			return nil, fmt.Errorf("host port %d to container port %d: out of range", m.HostPort, m.ContainerPort)
		}
		var host netip.Addr
		if m.HostIP != "" {
			if host, err = netip.ParseAddr(m.HostIP); err != nil || host.Zone() != "" {
				return nil, fmt.Errorf("host port %d: %q is not an IP address", m.HostPort, m.HostIP)
			}
			host = host.Unmap()
		}
		served := false
		for _, to := range pod {
			if host.IsValid() && to.Is4() != host.Is4() {
				continue
			}
			served = true
			ports = append(ports, nft.Port{
				Owner: owner, Protocol: protocol, HostIP: host, HostPort: uint16(m.HostPort),
				To: netip.AddrPortFrom(to, uint16(m.ContainerPort)),
			})
		}
		if !served {
			skipped = append(skipped, nft.Port{
				Protocol: protocol, HostIP: host, HostPort: uint16(m.HostPort), To: netip.AddrPortFrom(host, uint16(m.ContainerPort)),
			})
		}
	}
	for _, s := range skipped {
		isSame := func(p nft.Port) bool {
			return p.Protocol == s.Protocol && p.HostPort == s.HostPort && p.To.Port() == s.To.Port()
		}
		if !slices.ContainsFunc(ports, isSame) {
			return nil, fmt.Errorf("host port %d on %s: the pod has no address of that family", s.HostPort, s.HostIP)
		}
	}
	return ports, nil
}

func (m Mapping) protocolNumber() (uint8, error) {
	switch strings.ToLower(m.Protocol) {
	case "", "tcp":
		return unix.IPPROTO_TCP, nil
	case "udp":
		return unix.IPPROTO_UDP, nil
	case "sctp":
		return unix.IPPROTO_SCTP, nil
	}
	return 0, fmt.Errorf("host port %d: protocol %q is none of TCP, UDP, SCTP", m.HostPort, m.Protocol)
}

// Conflict returns an error if one of the ports overlaps with one of the other ports. Its time is proportional to the number of ports, not
// to the number of pairs.
func Conflict(ports, others []nft.Port) error { return indexPorts(ports).findConflict(others) }

// A slot identifies the packets that a port matches. The address is invalid for a port on all addresses.
type slot struct {
	protocol uint8
	port     uint16
	is4      bool
	host     netip.Addr
	some     bool // an additional entry of an index: it has the port on some address
}

type portIndex map[slot]struct{}

func slotOf(p nft.Port) slot {
	s := slot{protocol: p.Protocol, port: p.HostPort, is4: p.To.Addr().Is4(), host: p.HostIP}
	if s.host.IsUnspecified() {
		s.host = netip.Addr{}
	}
	return s
}

func indexPorts(ports []nft.Port) portIndex {
	index := make(portIndex, 2*len(ports))
	for _, p := range ports {
		s := slotOf(p)
		index[s] = struct{}{}
		s.host, s.some = netip.Addr{}, true
		index[s] = struct{}{}
	}
	return index
}

// findConflict returns an error if one of the other ports matches the same packets as a port of the index.
func (i portIndex) findConflict(others []nft.Port) error {
	for _, o := range others {
		s := slotOf(o)
		_, found := i[s]
		if !found {
			s.some, s.host = !s.host.IsValid(), netip.Addr{}
			_, found = i[s]
		}
		if found {
			return fmt.Errorf("host port %d is in use by %s", o.HostPort, o.Owner)
		}
	}
	return nil
}
