package podspec_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// TestHostPorts checks that the same containers have host ports as in GetHostPorts of Kubernetes' scheduler, which a kubelet uses too: main
// containers and sidecars.
func TestHostPorts(t *testing.T) {
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	of := func(port int32, policy *v1.ContainerRestartPolicy) v1.Container {
		return v1.Container{RestartPolicy: policy, Ports: []v1.ContainerPort{{ContainerPort: 1}, {ContainerPort: 1, HostPort: port}}}
	}
	spec := v1.PodSpec{InitContainers: []v1.Container{of(1, nil), of(2, &always), of(3, &never)},
		Containers: []v1.Container{of(4, nil), of(5, &never), of(6, &always)}}
	var got []int32
	for _, p := range podspec.HostPorts(&spec) {
		got = append(got, p.Number)
	}
	if !slices.Equal(got, []int32{4, 5, 6, 2}) {
		t.Error(got)
	}
	for _, p := range podspec.PortsOnHost(&spec) {
		if p.HostPort != 4 {
			t.Error(p)
		}
		break
	}
}

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
