package podspec_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// TestPortSet checks that a set finds the same conflicts as a comparison of all pairs of ports.
func TestPortSet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	someOf := func(list ...string) string { return list[r.IntN(len(list))] }
	somePort := func() podspec.HostPort {
		p := v1.ContainerPort{Protocol: v1.Protocol(someOf("", "TCP", "UDP")), HostPort: int32(1 + r.IntN(4)),
			HostIP: someOf("", "0.0.0.0", "::", "10.0.0.1", "10.0.0.2", "fd00::1")}
		h, _ := podspec.HostPortOf(&p)
		return h
	}
	for range 2000 {
		ports := make([]podspec.HostPort, r.IntN(8))
		for i := range ports {
			ports[i] = somePort()
		}
		p := somePort()
		want := slices.ContainsFunc(ports, p.Conflicts)
		if got := podspec.NewPortSet(ports).Conflicts(p); got != want {
			t.Fatalf("%v conflicts with %v: %t", ports, p, got)
		}
	}
}
