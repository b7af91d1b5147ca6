package cni

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/net/ipam/ipamtest"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// world is a node with an uplink to another host, all in namespaces of the test.
//
//	node (192.0.2.1, 2001:db8::1) ----- outside (192.0.2.2, 2001:db8::2)
//
// The other host has no route to the pods, so it can answer only masqueraded connections.
type world struct {
	node, outside netns.NS
	nodePath      string
	leases        *ipamtest.Memory
	dir           string
}

var nodeAddrs = []string{"192.0.2.1", "2001:db8::1"}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{leases: &ipamtest.Memory{}, dir: t.TempDir()}
	w.node, w.nodePath = netnstest.New(t)
	w.outside, _ = netnstest.New(t)
	// Bridged packets do not pass nftables, as on a node without the module br_netfilter.
	for _, n := range []string{"bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"} {
		check(t, w.node.Set(netns.Sysctl{Name: n, Value: "0", Optional: true}))
	}
	h, err := w.node.Netlink()
	check(t, err)
	defer h.Close()
	peer, err := w.outside.Open()
	check(t, err)
	defer peer.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "wan0", PeerNamespace: netlink.NsFd(peer.Fd())}
	veth.Name = "wan0"
	check(t, h.LinkAdd(veth))
	one, two := plug(t, w.node, "192.0.2.1/24", "2001:db8::1/64"), plug(t, w.outside, "192.0.2.2/24", "2001:db8::2/64")
	// The kernel needs some time until it responds for a new address.
	introduce(t, w.node, two, "192.0.2.2", "2001:db8::2")
	introduce(t, w.outside, one, "192.0.2.1", "2001:db8::1")
	for {
		link, err := h.LinkByName("wan0")
		check(t, err)
		if link.Attrs().OperState == netlink.OperUp {
			return w
		}
		runtime.Gosched() // waits until the kernel has processed the carrier change
	}
}

func introduce(t testing.TB, ns netns.NS, mac net.HardwareAddr, addrs ...string) {
	t.Helper()
	h, err := ns.Netlink()
	check(t, err)
	defer h.Close()
	link, err := h.LinkByName("wan0")
	check(t, err)
	for _, a := range addrs {
		check(t, h.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: net.ParseIP(a), HardwareAddr: mac, State: netlink.NUD_PERMANENT}))
	}
}

func plug(t testing.TB, ns netns.NS, addrs ...string) net.HardwareAddr {
	t.Helper()
	check(t, ns.Set(netns.Sysctl{Name: "ipv6/conf/wan0/accept_dad", Value: "0"}))
	h, err := ns.Netlink()
	check(t, err)
	defer h.Close()
	link, err := h.LinkByName("wan0")
	check(t, err)
	check(t, h.LinkSetUp(link))
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		check(t, err)
		check(t, h.AddrAdd(link, addr))
	}
	return link.Attrs().HardwareAddr
}

func (w *world) network(t testing.TB, change ...func(*Config)) *Network {
	t.Helper()
	cfg := Config{DataDir: w.dir, NamedDir: filepath.Join(w.dir, "netns"), Leases: w.leases, Host: w.node, Hairpin: true, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, c := range change {
		c(&cfg)
	}
	t.Cleanup(func() {
		for unix.Unmount(cfg.NamedDir, unix.MNT_DETACH) == nil {
		}
	})
	n, err := New(cfg)
	check(t, err)
	return n
}

func cidrs(prefixes ...string) func(*Config) {
	return func(c *Config) {
		for _, p := range prefixes {
			c.PodCIDRs = append(c.PodCIDRs, netip.MustParsePrefix(p))
		}
	}
}

// A pod is a sandbox whose network was set up.
type pod struct {
	id    string
	ns    netns.NS
	path  string
	addrs []netip.Addr
	cfg   *api.PodSandboxConfig
}

func (w *world) pod(t testing.TB, n *Network, id string, ports ...*api.PortMapping) *pod {
	t.Helper()
	p := &pod{id: id, cfg: &api.PodSandboxConfig{Metadata: &api.PodSandboxMetadata{Name: id, Namespace: "default", Uid: id}, PortMappings: ports}}
	p.ns, p.path = netnstest.New(t)
	var err error
	p.addrs, err = n.Setup(t.Context(), p.id, p.path, p.cfg)
	check(t, err)
	return p
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs a TCP and UDP server in a namespace. The server responds with its name and the address of the client.
func serve(t testing.TB, ns netns.NS, name string, port int) {
	t.Helper()
	addr := fmt.Sprintf(":%d", port)
	var l net.Listener
	var u net.PacketConn
	check(t, ns.Do(func() (err error) {
		if l, err = net.Listen("tcp", addr); err == nil {
			u, err = net.ListenPacket("udp", addr)
		}
		return err
	}))
	t.Cleanup(func() { l.Close(); u.Close() })
	answer := func(from net.Addr) string {
		a := netip.MustParseAddrPort(from.String())
		return fmt.Sprintf("%s sees %s\n", name, a.Addr().Unmap())
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, answer(c.RemoteAddr()))
			c.Close()
		}
	}()
	go func() {
		for b := make([]byte, 100); ; {
			_, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = u.WriteTo([]byte(answer(from)), from)
		}
	}()
}

// This duration is the maximum time to wait for a response on a busy machine.
const patience = time.Minute

// ask connects from a namespace. It returns the response, or the text of the error.
func ask(ns netns.NS, network, host string, port int) string {
	return askFor(patience, ns, network, host, port)
}

func askFor(patience time.Duration, ns netns.NS, network, host string, port int) string {
	var answer string
	err := ns.Do(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, err := (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(host, fmt.Sprint(port)))
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		if network == "udp" {
			if _, err := io.WriteString(c, "?"); err != nil {
				return err
			}
		}
		answer, err = bufio.NewReader(c).ReadString('\n')
		return err
	})
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(answer)
}

func wantAnswer(t testing.TB, from netns.NS, network, host string, port int, want string) {
	t.Helper()
	if got := ask(from, network, host, port); got != want {
		t.Errorf("%s to %s port %d: %q, want %q", network, host, port, got, want)
	}
}

// flow returns a function that sends a request from the other host. All its requests have the same UDP source port.
func (w *world) flow(t *testing.T, to string) func() string {
	t.Helper()
	var c net.Conn
	check(t, w.outside.Do(func() (err error) {
		c, err = net.Dial("udp", to)
		return err
	}))
	t.Cleanup(func() { c.Close() })
	return func() string {
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, "?"); err != nil {
			return err.Error()
		}
		answer, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(answer)
	}
}
