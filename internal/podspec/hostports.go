package podspec

import (
	"cmp"
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/sorting"
)

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

// HostPorts returns the host ports of a pod, see PortsOnHost.
func HostPorts(spec *v1.PodSpec) (out []HostPort) {
	for _, p := range PortsOnHost(spec) {
		h, _ := HostPortOf(p)
		out = append(out, h)
	}
	return out
}

// PortsOnHost returns each port of a pod that has a host port, with its container. Init containers that are not sidecars have none,
// whatever their specs say: they end before the pod serves, so neither the scheduler nor a kubelet counts their host ports. The main
// containers come first, because a kubelet maps a host port that a sidecar has too to the main container.
func PortsOnHost(spec *v1.PodSpec) iter.Seq2[*v1.Container, *v1.ContainerPort] {
	return func(yield func(*v1.Container, *v1.ContainerPort) bool) {
		for i, list := range [][]v1.Container{spec.Containers, spec.InitContainers} {
			for j := range list {
				c := &list[j]
				for k := range c.Ports {
					if c.Ports[k].HostPort != 0 && (i == 0 || IsSidecar(c)) && !yield(c, &c.Ports[k]) {
						return
					}
				}
			}
		}
	}
}

// A PortSet contains host ports in the order of compareHostPorts. A search in it takes about the same time for any number of ports.
type PortSet []HostPort

// NewPortSet sorts the given ports and returns them as a set, which needs no memory of its own.
func NewPortSet(ports []HostPort) PortSet {
	sorting.By(ports, compareHostPorts)
	return ports
}

// compareHostPorts orders ports by protocol, number and address. So of the ports with the same protocol and number, the one on all
// addresses comes first.
func compareHostPorts(a, b HostPort) int {
	return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Number, b.Number), cmp.Compare(a.IP, b.IP))
}

// Conflicts reports whether the port conflicts with a port of the set.
func (s PortSet) Conflicts(p HostPort) bool {
	conflictsAt := func(from HostPort) bool {
		i, _ := slices.BinarySearchFunc(s, from, compareHostPorts)
		return i < len(s) && s[i].Conflicts(p)
	}
	group := p
	group.IP = ""
	return conflictsAt(group) || conflictsAt(p)
}
