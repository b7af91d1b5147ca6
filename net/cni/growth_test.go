package cni

import (
	"fmt"
	"testing"
	"time"

	"github.com/islet-edge/islet/net/netns/netnstest"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkGrowth measures the setup and teardown of a sandbox's network for different numbers of other sandboxes with a host port. The
// number should not affect the result.
func BenchmarkGrowth(b *testing.B) {
	for _, others := range []int{1, 30, 100, 240} {
		for _, port := range []bool{false, true} {
			b.Run(fmt.Sprintf("others=%d/port=%t", others, port), func(b *testing.B) {
				w := newWorld(b)
				n := w.network(b, cidrs("10.42.0.0/23"))
				check(b, n.Reconcile(b.Context(), nil))
				for i := range others {
					w.pod(b, n, fmt.Sprint("other", i), tcp(int32(9000+i), 80))
				}
				cfg := &api.PodSandboxConfig{Metadata: &api.PodSandboxMetadata{Name: "pod", Namespace: "ns", Uid: "uid"}}
				if port {
					cfg.PortMappings = []*api.PortMapping{tcp(8000, 80)}
				}
				var setup, teardown time.Duration
				for b.Loop() {
					_, path, end := netnstest.NewUntilEnd(b)
					start := cpu(b)
					_, err := n.Setup(b.Context(), "pod", path, cfg)
					check(b, err)
					middle := cpu(b)
					check(b, n.Teardown(b.Context(), "pod", path, cfg))
					setup += middle - start
					teardown += cpu(b) - middle
					end()
				}
				per := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(b.N) }
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(per(setup), "ms-cpu-setup")
				b.ReportMetric(per(teardown), "ms-cpu-teardown")
			})
		}
	}
}
