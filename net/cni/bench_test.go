package cni

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/vishvananda/netlink"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// cpu returns the user and system CPU time of this process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	check(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSetupTeardown measures the setup and teardown of a sandbox's network. It also reports how many times longer this takes than the
// creation and removal of a bare veth pair, which is the lower bound.
func BenchmarkSetupTeardown(b *testing.B) {
	for _, c := range []struct {
		name  string
		cidrs []string
		ports int32
		conf  bool
	}{
		{"IPv4", []string{"10.42.0.0/24"}, 0, false},
		{"dual", []string{"10.42.0.0/24", "fd00:10:42::/64"}, 0, false},
		{"IPv4+port", []string{"10.42.0.0/24"}, 1, false},
		{"conflist", []string{"10.42.0.0/24"}, 1, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b)
			n := w.network(b, cidrs(c.cidrs...))
			if c.conf {
				n = w.network(b, w.conf(b, "1.conflist", w.chained("1.0.0")))
			}
			check(b, n.Reconcile(b.Context(), nil))
			for i := range 30 { // sets up other sandboxes
				w.pod(b, n, fmt.Sprint("other", i), tcp(int32(9000+i), 80))
			}
			cfg := &api.PodSandboxConfig{Metadata: &api.PodSandboxMetadata{Name: "pod", Namespace: "ns", Uid: "uid"}}
			for i := range c.ports {
				cfg.PortMappings = append(cfg.PortMappings, tcp(8000+i, 80))
			}
			var setup, teardown, bare time.Duration
			var used, usedBare time.Duration
			rounds := 0
			for b.Loop() {
				_, path, end := netnstest.NewUntilEnd(b)
				start, busy := time.Now(), cpu(b)
				_, err := n.Setup(b.Context(), "pod", path, cfg)
				check(b, err)
				setup += time.Since(start)
				start = time.Now()
				check(b, n.Teardown(b.Context(), "pod", path, cfg))
				teardown += time.Since(start)
				used += cpu(b) - busy
				end()

				_, path, end = netnstest.NewUntilEnd(b)
				start, busy = time.Now(), cpu(b)
				w.bareVeth(b, path)
				bare += time.Since(start)
				usedBare += cpu(b) - busy
				end()
				rounds++
			}
			per := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(rounds) }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(per(setup), "ms-setup")
			b.ReportMetric(per(teardown), "ms-teardown")
			b.ReportMetric(per(used), "ms-cpu")
			b.ReportMetric(float64(setup+teardown)/float64(bare), "x-bare-veth")
			b.ReportMetric(float64(used)/float64(usedBare), "x-bare-cpu")
		})
	}
}

// bareVeth creates a veth pair with one end in the namespace, and removes it.
func (w *world) bareVeth(b *testing.B, path string) {
	h, err := w.node.Netlink()
	check(b, err)
	defer h.Close()
	ns, err := netns.At(path).Open()
	check(b, err)
	defer ns.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "eth0", PeerNamespace: netlink.NsFd(ns.Fd())}
	veth.Name = "bare"
	check(b, h.LinkAdd(veth))
	check(b, h.LinkDel(veth))
}
