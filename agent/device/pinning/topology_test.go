package pinning

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/device/devicemanager"
)

const serial = "example.com/serial"

// A shelf is a fake provider whose devices belong to NUMA nodes.
type shelf struct{}

func (shelf) Allocate(context.Context, devicemanager.Request) (devicemanager.Allocation, error) {
	return devicemanager.Allocation{}, nil
}

func (w *world) plug() {
	l, err := w.devices.Connect(w.t.Context(), serial, shelf{})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := l.Devices([]devicemanager.Device{{ID: "a", Healthy: true, NUMA: []int64{0}}, {ID: "b", Healthy: true, NUMA: []int64{1}}, {ID: "c", Healthy: true, NUMA: []int64{1}}}); err != nil {
		w.t.Fatal(err)
	}
}

// TestTopology checks that a pod is admitted only if its devices, CPUs and memory are all on one NUMA node.
func TestTopology(t *testing.T) {
	for _, scope := range []string{"container", "pod"} {
		t.Run(scope, func(t *testing.T) {
			w := newWorld(t, static("--topology-manager-policy=single-numa-node", "--topology-manager-scope="+scope,
				"--memory-manager-policy=Static",
				"--reserved-memory=0:memory=50Mi;1:memory=50Mi")...)
			w.plug()
			ask := func(uid string, cpus string, devices int) *v1.Pod {
				p := w.pod(uid, cpus)
				p.Spec.Containers[0].Resources.Limits[serial] = *resource.NewQuantity(int64(devices), resource.DecimalSI)
				return p
			}
			two := ask("two", "3", 2) // only node 1 has two devices
			w.admit(two, "", "")
			cpus, mems := w.config(two, 0)
			if mems != "1" || cpus != "1,3,5" && cpus != "1,5,7" && cpus != "1,3,7" && cpus != "3,5,7" {
				t.Errorf("CPUs %s, node %s", cpus, mems)
			}
			for _, id := range w.Holding("two", "c0").CPUs {
				if id%2 != 1 {
					t.Errorf("CPU %d is on node 0", id)
				}
			}
			if held := w.devices.Holdings(); len(held) != 1 || !slices.Equal(held[0].IDs, []string{"b", "c"}) {
				t.Errorf("devices %+v", held)
			}
			w.admit(ask("more", "4", 1), "TopologyAffinityError", "Resources cannot be allocated with Topology locality")
			w.admit(ask("last", "1", 1), "", "")
			if _, mems := w.config(ask("last", "1", 1), 0); mems != "0" {
				t.Errorf("the last one is on node %s", mems)
			}
			if err := w.start(); err != nil {
				t.Fatal(err)
			}
			if _, mems := w.config(two, 0); mems != "1" {
				t.Errorf("after a restart on node %s", mems)
			}
			if n := len(w.Collectors()); n != 12 {
				t.Errorf("%d collectors", n)
			}
		})
	}
}
