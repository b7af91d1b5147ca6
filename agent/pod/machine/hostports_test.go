package machine

import (
	"net"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podtest"
)

// TestPortConflicts checks that a host port at which a program listens is reported, except for a pod with hostNetwork.
func TestPortConflicts(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	pod := func(name string, port int32, host bool) *v1.Pod {
		p := podtest.New(name)
		p.Spec.HostNetwork = host
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: port, Protocol: v1.ProtocolTCP}}
		return p
	}
	port := int32(ln.Addr().(*net.TCPAddr).Port)
	var m *Machine
	if got := m.PortConflicts([]*v1.Pod{pod("taken", port, false), pod("own", port, true), pod("none", 0, false)}); len(got) != 1 || len(got["taken"]) != 1 {
		t.Errorf("%v", got)
	}
}
