package doctor

import (
	"context"
)

// checkHostPorts reports host ports of pods at which a program of the host already listens. It skips pods with
// hostNetwork, because the processes of such a pod themselves listen at these ports on the host.
func (p *checkup) checkHostPorts(ctx context.Context) {
	if p.Pods == nil || p.HostPorts == nil {
		return
	}
	pods, ok := p.Pods(ctx)
	taken, err := p.HostPorts(p.Host)
	if !ok || err != nil {
		return
	}
	found := false
	for i := range pods {
		if pods[i].Spec.HostNetwork {
			continue
		}
		for _, text := range taken(&pods[i]) {
			found = true
			p.add("host-port", Warning, "stop that program, or choose another hostPort", "pod %s/%s: %s", pods[i].Namespace, pods[i].Name,
				text)
		}
	}
	if !found {
		p.add("host-port", OK, "", "no program of the host listens on a host port of a pod")
	}
}
