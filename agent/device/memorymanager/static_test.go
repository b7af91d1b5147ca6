package memorymanager

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/internal/podtest"
)

func asking(uid string, sizes ...uint64) *v1.Pod {
	p := podtest.New("", podtest.UID(uid), podtest.Containers())
	for i, n := range sizes {
		l := podtest.CPUAndMemory("1", fmt.Sprint(n))
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: v1.ResourceRequirements{Requests: l, Limits: l}})
	}
	return p
}

// TestAsUpstream compares nodes, hints and rejections with those of a kubelet. test/cluster/upstream has recorded them.
func TestAsUpstream(t *testing.T) {
	data, err := os.ReadFile("../cpumanager/testdata/upstream.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Memory []struct {
			Memory, Reserved []uint64
			Steps            []struct {
				Asks       uint64
				Gone       int
				Nodes, Got topology.Mask
				Error      string
				Hints      map[topology.Mask]bool
			}
		}
	}
	if err := json.Unmarshal(data, &all); err != nil || len(all.Memory) < 100 {
		t.Fatal(len(all.Memory), err)
	}
	for i, c := range all.Memory {
		var m topology.Machine
		by, sum := Reserved{}, int64(0)
		for id, n := range c.Memory {
			m.Nodes = append(m.Nodes, topology.Node{ID: id, Memory: n})
			by[id] = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(int64(c.Reserved[id]), resource.BinarySI)}
			sum += int64(c.Reserved[id])
		}
		s, err := New(m, by, v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(sum, resource.BinarySI)})
		if err != nil {
			t.Fatal(err)
		}
		given := &Assignments{}
		for j, step := range c.Steps {
			if step.Asks == 0 {
				given.Remove(types.UID(fmt.Sprint(step.Gone)))
				continue
			}
			where := fmt.Sprintf("case %d step %d (%v, asks %d at %b, %+v)", i, j, c.Memory, step.Asks, step.Nodes, given.rows)
			pod := asking(fmt.Sprint(j), step.Asks)
			hints := s.Hints(pod, &pod.Spec.Containers[0], given)["memory"]
			if len(hints) != len(step.Hints) {
				t.Errorf("%s: hints %v, not %v", where, hints, step.Hints)
			}
			for _, h := range hints {
				if preferred, ok := step.Hints[h.Nodes]; !ok || preferred != h.Preferred {
					t.Errorf("%s: hint %+v", where, h)
				}
			}
			err := s.Assign(pod, &pod.Spec.Containers[0], topology.Hint{Nodes: step.Nodes}, given)
			if (err == nil) != (step.Error == "") || err != nil && err.Error() != step.Error {
				t.Fatalf("%s: %v, not %q", where, err, step.Error)
			}
			if blocks, _ := given.Blocks(pod.UID, "c0"); err == nil && (len(blocks) != 1 || blocks[0].Nodes != step.Got) {
				t.Fatalf("%s: got %+v, not %b", where, blocks, step.Got)
			}
			if err := s.Check(given); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
		}
	}
}

// TestReserved checks that a configuration is rejected if the memory reserved on the NUMA nodes differs from the memory that is not
// allocatable.
func TestReserved(t *testing.T) {
	m := topology.Machine{Nodes: []topology.Node{{ID: 0, Memory: 4 << 30, HugePages: map[uint64]uint64{2 << 20: 1 << 30}}}}
	list := func(q string) v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: resource.MustParse(q)} }
	for name, tt := range map[string]struct {
		by    Reserved
		kept  v1.ResourceList
		fails string
	}{
		"right":        {Reserved{0: list("1Gi")}, list("1Gi"), ""},
		"less":         {Reserved{0: list("1Gi")}, list("1100Mi"), `the total amount "1Gi" of type "memory" is not equal to the value "1100Mi" determined by Node Allocatable feature`},
		"nothing":      {nil, nil, "[memorymanager] you should specify the system reserved memory"},
		"another node": {Reserved{1: list("1Gi")}, list("1Gi"), "references a NUMA node 1 that does not exist"},
		"other kinds":  {Reserved{0: list("1Gi")}, v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceCPU: resource.MustParse("1")}, ""},
	} {
		s, err := New(m, tt.by, tt.kept)
		if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if all := s.Allocatable(); len(all) != 2 || all[0] != (Block{Kind: "hugepages-2Mi", Nodes: 1, Size: 1 << 30}) || all[1].Size != 2<<30 {
				t.Errorf("%s: %+v", name, all)
			}
		}
	}
}

// TestInit checks that later containers can use the memory of a finished init container.
func TestInit(t *testing.T) {
	m := topology.Machine{Nodes: []topology.Node{{ID: 0, Memory: 5 << 30}}}
	kept := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	s, err := New(m, Reserved{0: kept}, kept)
	if err != nil {
		t.Fatal(err)
	}
	pod := asking("p", 3<<30, 2<<30, 2<<30)
	pod.Spec.InitContainers, pod.Spec.Containers = pod.Spec.Containers[:1], pod.Spec.Containers[1:]
	given := &Assignments{}
	if h := s.PodHints(pod, given)["memory"]; len(h) != 1 || !h[0].Preferred {
		t.Errorf("hints %v", h)
	}
	take := func(ctr *v1.Container) {
		t.Helper()
		if err := s.Assign(pod, ctr, topology.Hint{}, given); err != nil {
			t.Fatal(err)
		}
	}
	take(&pod.Spec.InitContainers[0])
	take(&pod.Spec.Containers[0])
	take(&pod.Spec.Containers[1])
	if n := s.nodeStates(given)[0].free[v1.ResourceMemory]; n != 0 {
		t.Errorf("%d bytes are free", n)
	}
	other := asking("q", 1)
	if err := s.Assign(other, &other.Spec.Containers[0], topology.Hint{}, given); err == nil {
		t.Error("the memory does not suffice")
	}
	given.Remove("p")
	if err := s.Assign(other, &other.Spec.Containers[0], topology.Hint{}, given); err != nil {
		t.Error(err)
	}
	burst := asking("b", 1)
	burst.Spec.Containers[0].Resources.Requests = nil
	burst.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}
	if s.Hints(burst, &burst.Spec.Containers[0], given) != nil || len(s.PodHints(burst, given)) > 0 {
		t.Error("a burstable pod gets memory nodes")
	}
}
