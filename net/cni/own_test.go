package cni

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/net/netns"
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

// TestSegmentSize checks that TCP connections between pods and other hosts use segments that the uplink can carry, in both directions, and
// that connections of pods with each other use the whole MTU of the bridge. The other host does not know the MTU of the uplink, as a host
// that is several routers away.
func TestSegmentSize(t *testing.T) {
	families(t, func(t *testing.T, at int, cidr ...string) {
		w := newWorld(t)
		h, err := w.node.Netlink()
		check(t, err)
		defer h.Close()
		wan, err := h.LinkByName("wan0")
		check(t, err)
		check(t, h.LinkSetMTU(wan, 1400))
		n := w.network(t, cidrs(cidr...))
		check(t, n.Reconcile(t.Context(), nil))
		one := w.pod(t, n, "one", &api.PortMapping{Protocol: api.Protocol_TCP, ContainerPort: 80, HostPort: 8080})
		two := w.pod(t, n, "two")
		outside := []string{"192.0.2.2", "2001:db8::2"}[at]
		headers := []int{40, 60}[at] // IP and TCP
		for _, c := range []struct {
			name         string
			server, from netns.NS
			port         int
			to           string
			dial, mtu    int
		}{
			{"out", w.outside, one.ns, 80, outside, 80, 1400},
			{"in", one.ns, w.outside, 80, nodeAddrs[at], 8080, 1400},
			{"pod to pod", two.ns, one.ns, 80, two.addrs[0].String(), 80, 1500},
		} {
			client, server := connect(t, c.server, c.port, c.from, c.to, c.dial)
			for _, conn := range []*net.TCPConn{client, server} {
				// Each segment has TCP's option for timestamps.
				if got, want := segmentSize(t, conn), c.mtu-headers-12; got != want {
					t.Errorf("%s: %s sends segments of %d bytes, want %d", c.name, conn.LocalAddr(), got, want)
				}
			}
		}
	})
}

// connect returns both ends of a TCP connection.
func connect(t *testing.T, in netns.NS, port int, from netns.NS, to string, dial int) (client, server *net.TCPConn) {
	t.Helper()
	var l *net.TCPListener
	check(t, in.Do(func() (err error) {
		l, err = net.ListenTCP("tcp", &net.TCPAddr{Port: port})
		return err
	}))
	defer l.Close()
	check(t, l.SetDeadline(time.Now().Add(patience)))
	check(t, from.Do(func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(to, fmt.Sprint(dial)), patience)
		if err == nil {
			client = c.(*net.TCPConn)
		}
		return err
	}))
	t.Cleanup(func() { client.Close() })
	server, err := l.AcceptTCP()
	check(t, err)
	t.Cleanup(func() { server.Close() })
	return client, server
}

func segmentSize(t *testing.T, c *net.TCPConn) (size int) {
	t.Helper()
	raw, err := c.SyscallConn()
	check(t, err)
	check(t, raw.Control(func(fd uintptr) {
		size, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	}))
	check(t, err)
	return size
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
