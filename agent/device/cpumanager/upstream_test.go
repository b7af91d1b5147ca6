package cpumanager_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/islet-edge/islet/agent/device/cpumanager"
	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/internal/podtest"
)

// machine returns a machine whose CPUs are numbered as in the kubelet's test cases: the first threads of all cores precede the second
// threads.
func machine(sockets, nodes, caches, cores, threads int) topology.Machine {
	m := topology.Machine{CPUs: topology.CPUs{}}
	all := sockets * nodes * caches * cores
	for core := range all {
		cache := core / cores
		node := cache / caches
		for t := range threads {
			m.CPUs[core+t*all] = topology.CPU{Core: core, Cache: cache, Node: node, Socket: node / nodes}
		}
	}
	for id := range sockets * nodes {
		m.Nodes = append(m.Nodes, topology.Node{ID: id})
	}
	return m
}

func asking(uid string, cpus ...int64) *v1.Pod {
	p := podtest.New("", podtest.UID(uid), podtest.Containers())
	for i, n := range cpus {
		l := podtest.CPUAndMemory(fmt.Sprint(n), "1Mi")
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: v1.ResourceRequirements{Requests: l, Limits: l}})
	}
	return p
}

// TestAsUpstream compares CPUs, hints and rejections with those of a kubelet. test/cluster/upstream has recorded them.
func TestAsUpstream(t *testing.T) {
	data, err := os.ReadFile("testdata/upstream.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		CPU []struct {
			Sockets, NodesPerSocket, CachesPerNode, CoresPerCache, Threads, Reserved int
			Options                                                                  map[string]string
			Steps                                                                    []struct {
				Asks, Gone int
				Nodes      topology.Mask
				Got        string
				Hints      map[topology.Mask]bool
			}
		}
	}
	if err := json.Unmarshal(data, &all); err != nil || len(all.CPU) < 100 {
		t.Fatal(len(all.CPU), err)
	}
	for i, c := range all.CPU {
		o, err := cpumanager.ParseOptions(c.Options, true, true)
		if err != nil {
			t.Fatal(err)
		}
		m := machine(c.Sockets, c.NodesPerSocket, c.CachesPerNode, c.CoresPerCache, c.Threads)
		s, err := cpumanager.New(cpumanager.Config{Machine: m, Options: o, Count: c.Reserved})
		if err != nil {
			t.Fatal(err)
		}
		given := cpumanager.Assignments{}
		for j, step := range c.Steps {
			if step.Asks == 0 {
				delete(given, types.UID(fmt.Sprint(step.Gone)))
				continue
			}
			where := fmt.Sprintf("case %d step %d (%+v, asks %d at %b, %v)", i, j, c.Options, step.Asks, step.Nodes, given)
			pod := asking(fmt.Sprint(j), int64(step.Asks))
			hints := s.Hints(pod, &pod.Spec.Containers[0], given)["cpu"]
			if len(hints) != len(step.Hints) {
				t.Errorf("%s: hints %v, not %v", where, hints, step.Hints)
			}
			for _, h := range hints {
				if preferred, ok := step.Hints[h.Nodes]; !ok || preferred != h.Preferred {
					t.Errorf("%s: hint %+v", where, h)
				}
			}
			err := s.Assign(pod, &pod.Spec.Containers[0], step.Nodes, given)
			got := given[pod.UID]["c0"].String()
			if err != nil {
				got = "!" + err.Error()
			}
			if strings.HasPrefix(got, "!") != strings.HasPrefix(step.Got, "!") || got != step.Got {
				t.Fatalf("%s: got %s, not %s", where, got, step.Got)
			}
			if err := s.Check(given); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
		}
	}
}

// TestTakeKeepsAssigned checks that a container keeps its CPUs after full-pcpus-only was set, even if they are not whole cores. A new
// container gets only whole cores.
func TestTakeKeepsAssigned(t *testing.T) {
	s, err := cpumanager.New(cpumanager.Config{Machine: machine(1, 1, 1, 4, 2), Options: cpumanager.Options{FullCores: true}, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	pod := asking("a", 1)
	given := cpumanager.Assignments{"a": {"c0": cpuset.New(2)}}
	if err := s.Assign(pod, &pod.Spec.Containers[0], 0, given); err != nil || given["a"]["c0"].String() != "2" {
		t.Errorf("assigned: %v, %v", given, err)
	}
	var refused *cpumanager.AlignmentError
	if other := asking("b", 1); !errors.As(s.Assign(other, &other.Spec.Containers[0], 0, given), &refused) {
		t.Error("a new container gets a part of a core")
	}
}
