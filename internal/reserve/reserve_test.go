package reserve

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

func machine() Machine {
	return Machine{PIDs: 32768, CPUs: []int{0, 1, 2, 3}, Capacity: v1.ResourceList{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("4Gi"), "ephemeral-storage": resource.MustParse("100Gi"),
		"hugepages-2Mi": resource.MustParse("512Mi"), "pods": resource.MustParse("110"),
	}}
}

func TestShare(t *testing.T) {
	for name, tt := range map[string]struct {
		k                     kubelet.KubeletConfiguration
		allocatable, enforced string // cpu, memory, ephemeral-storage, pids
	}{
		"nothing": {kubelet.KubeletConfiguration{}, "4 3584Mi 100Gi", "4 4Gi 100Gi 32768"},
		"evictions only": {kubelet.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "15%"}},
			"4 3484Mi 96636764000", "4 4Gi 100Gi 32768"},
		"evictions off": {kubelet.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "0%", "nodefs.available": "100%"}}, "4 3584Mi 100Gi", "4 4Gi 100Gi 32768"},
		"all": {kubelet.KubeletConfiguration{
			KubeReserved:   map[string]string{"cpu": "500m", "memory": "256Mi", "pid": "100"},
			SystemReserved: map[string]string{"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "1Gi", "pid": "1000"},
			EvictionHard:   map[string]string{"memory.available": "5%"}, EnforceNodeAllocatable: []string{"pods"},
		}, "3250m 3006477104 99Gi", "3250m 3584Mi 99Gi 31668"},
		"not enforced": {kubelet.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "1", "memory": "1Gi"}}, "3 2560Mi 100Gi", "4 4Gi 100Gi 32768"},
		"CPUs by number": {kubelet.KubeletConfiguration{ReservedSystemCPUs: "0,2-3", KubeReserved: map[string]string{"cpu": "2"}, SystemReserved: map[string]string{"cpu": "2"},
			EnforceNodeAllocatable: []string{"pods"}}, "1 3584Mi 100Gi", "1 4Gi 100Gi 32768"},
		"more than the rest of memory": {kubelet.KubeletConfiguration{KubeReserved: map[string]string{"memory": "4Gi"}, EnforceNodeAllocatable: []string{"pods"}}, "4 0 100Gi", "4 0 100Gi 32768"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(&tt.k, machine())
			if err != nil {
				t.Fatal(err)
			}
			compare := func(what string, l v1.ResourceList, want string) {
				t.Helper()
				for i, text := range strings.Fields(want) {
					name := []v1.ResourceName{"cpu", "memory", "ephemeral-storage", PIDs}[i]
					if q := l[name]; q.Cmp(resource.MustParse(text)) != 0 {
						t.Errorf("%s: %s is %s, not %s", what, name, q.String(), text)
					}
				}
			}
			compare("allocatable", s.Allocatable(), tt.allocatable)
			compare("enforced", s.EnforcedLimits(tt.k.EnforceNodeAllocatable), tt.enforced)
			if q := s.Allocatable()["hugepages-2Mi"]; q.String() != "512Mi" {
				t.Errorf("huge pages: %s", q.String())
			}
			if q := s.Allocatable()["pods"]; q.Value() != 110 {
				t.Errorf("pods: %s", q.String())
			}
			if _, there := s.Allocatable()[PIDs]; there {
				t.Error("process IDs are not a resource of the Node")
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		k    kubelet.KubeletConfiguration
		want string
	}{
		"too much": {kubelet.KubeletConfiguration{KubeReserved: map[string]string{"memory": "3Gi"}, SystemReserved: map[string]string{"memory": "1Gi"}, EvictionHard: map[string]string{"memory.available": "1Mi"}},
			`invalid Node Allocatable configuration. Resource "memory" has a reservation of 4097Mi but capacity of 4Gi. Expected capacity >= reservation.`},
		"a CPU that is not there": {kubelet.KubeletConfiguration{ReservedSystemCPUs: "3-4"}, "no CPU 4, which 3-4 names"},
		"no list":                 {kubelet.KubeletConfiguration{ReservedSystemCPUs: "x"}, "not a list of CPUs"},
	} {
		if _, err := New(&tt.k, machine()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCPUs(f *testing.F) {
	f.Add("0,2-3")
	f.Add("0-65535")
	f.Add("3-1,,")
	f.Fuzz(func(t *testing.T, text string) {
		cpus, err := CPUs(text)
		if err == nil && (len(cpus) == 0 || !slices.IsSorted(cpus) || cpus[0] < 0 || cpus[len(cpus)-1] >= maxCPU) {
			t.Errorf("%q gives %v", text, cpus)
		}
	})
}
