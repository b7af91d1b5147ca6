package portmap

import (
	"fmt"
	"net/netip"
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
// family of HostIP.
func Ports(owner string, mappings []Mapping, pod []netip.Addr) ([]nft.Port, error) {
	var ports []nft.Port
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
			return nil, fmt.Errorf("host port %d on %s: the pod has no address of that family", m.HostPort, host)
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

// Conflict returns an error if one of the ports overlaps with one of the other ports.
func Conflict(ports, others []nft.Port) error {
	for _, p := range ports {
		for _, o := range others {
			if doOverlap(p, o) {
				return fmt.Errorf("host port %d is in use by %s", p.HostPort, o.Owner)
			}
		}
	}
	return nil
}

// doOverlap reports whether two ports match the same packets.
func doOverlap(a, b nft.Port) bool {
	if a.Protocol != b.Protocol || a.HostPort != b.HostPort || a.To.Addr().Is4() != b.To.Addr().Is4() {
		return false
	}
	anyA, anyB := !a.HostIP.IsValid() || a.HostIP.IsUnspecified(), !b.HostIP.IsValid() || b.HostIP.IsUnspecified()
	return anyA || anyB || a.HostIP == b.HostIP
}
