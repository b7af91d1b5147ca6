package podspec

import v1 "k8s.io/api/core/v1"

// A HostPort is a port of the host, on one or all of the host's addresses.
type HostPort struct {
	Protocol v1.Protocol
	Number   int32
	IP       string // empty: all
}

// Conflicts reports whether two host ports cannot be used at the same time.
func (p HostPort) Conflicts(o HostPort) bool {
	return p.Protocol == o.Protocol && p.Number == o.Number && (p.IP == o.IP || p.IP == "" || o.IP == "")
}

// HostPortOf returns the host port of a container's port. It returns false if the container's port
// has no host port.
func HostPortOf(p *v1.ContainerPort) (HostPort, bool) {
	h := HostPort{Protocol: p.Protocol, Number: p.HostPort, IP: p.HostIP}
	if h.Protocol == "" {
		h.Protocol = v1.ProtocolTCP
	}
	if h.IP == "0.0.0.0" || h.IP == "::" {
		h.IP = ""
	}
	return h, p.HostPort != 0
}

// HostPorts returns the host ports of all containers of a pod.
func HostPorts(spec *v1.PodSpec) (out []HostPort) {
	for _, c := range Containers(spec) {
		for i := range c.Ports {
			if h, ok := HostPortOf(&c.Ports[i]); ok {
				out = append(out, h)
			}
		}
	}
	return out
}

// A PortSet contains host ports. A search in it takes the same time for any number of ports.
type PortSet map[HostPort]struct{}

// someAddress is the IP of an additional entry for each protocol and number in a PortSet.
const someAddress = "*"

// NewPortSet returns a set of the given ports.
func NewPortSet(ports []HostPort) PortSet {
	s := make(PortSet, 2*len(ports))
	for _, p := range ports {
		s[p] = struct{}{}
		p.IP = someAddress
		s[p] = struct{}{}
	}
	return s
}

// Conflicts reports whether the port conflicts with a port of the set.
func (s PortSet) Conflicts(p HostPort) bool {
	if _, found := s[p]; found {
		return true
	}
	if p.IP == "" {
		p.IP = someAddress
	} else {
		p.IP = ""
	}
	_, found := s[p]
	return found
}
