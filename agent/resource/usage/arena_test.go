package usage

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/process"
	"github.com/islet-edge/islet/metrics/sample"
)

// TestArena checks that the statistics of a pod contain only its own containers and interfaces. The test runs with and without reuse of the
// previous pod's memory.
func TestArena(t *testing.T) {
	for _, again := range []bool{false, true} {
		var checks []func() // checks of the statistics that are kept
		n := nodeAnswer{Usage: New(Config{}), arena: new(arena), j: new(joinedFigures)}
		for i := range 40 {
			p := &pod{
				name:  fmt.Sprint("p", i),
				group: &sample.Group{Reading: cgroup.Reading{Details: new(cgroup.Details), At: time.Unix(1, 0)}},
			}
			var containers, interfaces []string
			for k := range i % 4 {
				containers = append(containers, fmt.Sprint("c", i, k))
				p.containers = append(p.containers, &container{name: containers[k]})
				interfaces = append(interfaces, fmt.Sprint("eth", i, k))
				p.group.Network = append(p.group.Network, process.Interface{Name: interfaces[k]})
			}
			if again {
				n.arena.reset()
			}
			out := n.podStats(t.Context(), p)
			check := func() { checkPod(t, i, &out, containers, interfaces) }
			if again {
				check()
			} else {
				checks = append(checks, check)
			}
		}
		if most := 3; again && (cap(n.containers) > 2*most || cap(n.interfaces) > 2*most) {
			t.Errorf("capacity for %d containers and %d interfaces, pods have up to %d", cap(n.containers), cap(n.interfaces), most)
		}
		for _, check := range checks {
			check()
		}
	}
}
func checkPod(t *testing.T, i int, p *stats.PodStats, containers, interfaces []string) {
	t.Helper()
	var got, links []string
	for _, c := range p.Containers {
		got = append(got, c.Name)
	}
	if p.Network != nil {
		for _, l := range p.Network.Interfaces {
			links = append(links, l.Name)
		}
	}
	if !reflect.DeepEqual(got, containers) || !reflect.DeepEqual(links, interfaces) || (p.Containers == nil) != (containers == nil) {
		t.Errorf("pod %d: containers %v, interfaces %v; want %v, %v", i, got, links, containers, interfaces)
	}
	if cap(p.Containers) != len(p.Containers) {
		t.Errorf("pod %d: an append to its containers overwrites those of the next pod", i)
	}
}
