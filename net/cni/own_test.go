package cni

import (
	"fmt"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func families(t *testing.T, f func(t *testing.T, at int, cidr ...string)) {
	t.Run("IPv4", func(t *testing.T) { f(t, 0, "10.42.0.0/24") })
	t.Run("IPv6", func(t *testing.T) { f(t, 1, "fd00:10:42::/64") })
}

func TestPodTalksToPodAndOutside(t *testing.T) {
	families(t, func(t *testing.T, at int, cidr ...string) {
		w := newWorld(t)
		n := w.network(t, cidrs(cidr...))
		check(t, n.Reconcile(t.Context(), nil))
		one, two := w.pod(t, n, "one"), w.pod(t, n, "two")
		serve(t, two.ns, "two", 80)
		serve(t, w.outside, "outside", 80)
		serve(t, w.node, "node", 80)
		outside := []string{"192.0.2.2", "2001:db8::2"}[at]
		for _, network := range []string{"tcp", "udp"} {
			wantAnswer(t, one.ns, network, two.addrs[0].String(), 80, "two sees "+one.addrs[0].String())
			wantAnswer(t, two.ns, network, two.addrs[0].String(), 80, "two sees "+two.addrs[0].String())
			wantAnswer(t, one.ns, network, outside, 80, "outside sees "+nodeAddrs[at])
		}
		wantAnswer(t, one.ns, "tcp", nodeAddrs[at], 80, "node sees "+one.addrs[0].String())
	})
}

func TestHostPorts(t *testing.T) {
	families(t, func(t *testing.T, at int, cidr ...string) {
		w := newWorld(t)
		n := w.network(t, cidrs(cidr...))
		check(t, n.Reconcile(t.Context(), nil))
		var ports []*api.PortMapping
		for _, proto := range []api.Protocol{api.Protocol_TCP, api.Protocol_UDP} {
			ports = append(ports, &api.PortMapping{Protocol: proto, ContainerPort: 80, HostPort: 8080},
				&api.PortMapping{Protocol: proto, ContainerPort: 80, HostPort: 8081, HostIp: nodeAddrs[at]})
		}
		web, other := w.pod(t, n, "web", ports...), w.pod(t, n, "other")
		serve(t, web.ns, "web", 80)
		node := nodeAddrs[at]
		gateway := []string{"10.42.0.1", "fd00:10:42::1"}[at]
		client := []string{"192.0.2.2", "2001:db8::2"}[at]
		localhost := []string{"127.0.0.1", "::1"}[at]
		for _, network := range []string{"tcp", "udp"} {
			for _, port := range []int{8080, 8081} {
				t.Run(fmt.Sprint(network, port), func(t *testing.T) {
					wantAnswer(t, w.outside, network, node, port, "web sees "+client)
					wantAnswer(t, w.node, network, node, port, "web sees "+node)
					wantAnswer(t, other.ns, network, node, port, "web sees "+gateway)
					wantAnswer(t, web.ns, network, node, port, "web sees "+gateway)
				})
			}
			wantAnswer(t, w.node, network, localhost, 8080, "web sees "+gateway)
			wantAnswer(t, other.ns, network, gateway, 8080, "web sees "+gateway)
		}
		check(t, n.Teardown(t.Context(), web.id, web.path, web.cfg))
		if got := ask(w.outside, "tcp", node, 8080); got != "dial tcp "+ask8080(node)+": connect: connection refused" {
			t.Errorf("after teardown: %q", got)
		}
	})
}

func ask8080(node string) string {
	if node[0] == '1' {
		return node + ":8080"
	}
	return "[" + node + "]:8080"
}
