package check

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/podspec"
)

// A usedPort is a host port of a container, or of a pod of the node.
type usedPort struct {
	podspec.HostPort

	owner string // for messages
	pod   *pod   // nil for a pod of the node
}

// collidingPorts reports host ports that are used twice: by two pods of the files, by a pod of the files and a pod of the node, or by two
// containers of a pod. Init containers that are not sidecars have no host ports, see podspec.PortsOnHost.
func (c *checkup) collidingPorts(pods []*pod) {
	used := map[int32][]usedPort{}
	for _, taken := range c.portsOfNode(pods) {
		used[taken.Number] = append(used[taken.Number], taken)
	}
	for _, p := range pods {
		p.eachPort(func(at *field.Path, ctr *v1.Container, port podspec.HostPort) {
			for _, u := range used[port.Number] {
				if !u.Conflicts(port) || u.pod != nil && !sameNode(u.pod, p) {
					continue
				}
				p.errorf(at.String(), "host port %d/%s is taken by %s", port.Number, port.Protocol, u.owner)
				break
			}
			if len(used[port.Number]) < maxOwners {
				used[port.Number] = append(used[port.Number], usedPort{port, ownerOf(p, ctr), p})
			}
		})
	}
}

// maxOwners is the maximum number of owners of a port. Further pods are compared only with these
// owners.
const maxOwners = 100

func ownerOf(p *pod, ctr *v1.Container) string {
	line := ""
	if p.place != nil {
		line = fmt.Sprintf(":%d", p.place.Line)
	}
	return fmt.Sprintf("container %q of pod %q in %s%s", ctr.Name, p.Name, p.file, line)
}

// sameNode reports whether two pods may run on the same node. Pods without spec.nodeName run on each node.
func sameNode(a, b *pod) bool {
	if a.place == nil || b.place == nil {
		return true
	}
	return a.place.NodeName == "" || b.place.NodeName == "" || a.place.NodeName == b.place.NodeName
}

// eachPort calls visit for each host port.
func (p *pod) eachPort(visit func(at *field.Path, ctr *v1.Container, port podspec.HostPort)) {
	spec := field.NewPath("spec")
	each := func(at *field.Path, c *v1.Container) {
		for i := range c.Ports {
			if port, ok := podspec.HostPortOf(&c.Ports[i]); ok {
				visit(at.Child("ports").Index(i).Child("hostPort"), c, port)
			}
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; podspec.IsSidecar(c) {
			each(spec.Child("initContainers").Index(i), c)
		}
	}
	for i := range p.Spec.Containers {
		each(spec.Child("containers").Index(i), &p.Spec.Containers[i])
	}
}

// portsOfNode returns the host ports of the node's pods. It omits pods that the files replace.
func (c *checkup) portsOfNode(pods []*pod) (ports []usedPort) {
	if c.node == nil {
		return nil
	}
	replaced := map[reference]bool{}
	for _, p := range pods {
		replaced[reference{"Pod", p.Namespace, p.Name}] = true
	}
	for i := range c.node.Pods {
		p := &c.node.Pods[i]
		if replaced[reference{"Pod", p.Namespace, p.Name}] || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		for _, port := range podspec.HostPorts(&p.Spec) {
			ports = append(ports, usedPort{port, fmt.Sprintf("pod %s/%s of this node", p.Namespace, p.Name), nil})
		}
	}
	return ports
}
