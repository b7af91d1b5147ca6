package translate

import (
	"cmp"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/podtest"
)

func memoryPod(request, limit string, cpu bool) *v1.Pod {
	p := podtest.New("", podtest.Requests(podtest.CPUAndMemory("", request)), podtest.Limits(podtest.CPUAndMemory("", limit)))
	if cpu {
		r := p.Spec.Containers[0].Resources
		r.Requests[v1.ResourceCPU], r.Limits[v1.ResourceCPU] = resource.MustParse("1"), resource.MustParse("1")
	}
	return p
}

// TestMemoryQoS checks that the memory values follow the formula in KEP-2570.
func TestMemoryQoS(t *testing.T) {
	node := Node{SwapCgroup: 0, Allocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1000Mi")}}
	leveled := memoryPod("100Mi", "", false) // the pod's cgroup throttles the container
	leveled.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("300Mi")}}
	for name, tt := range map[string]struct {
		pod    *v1.Pod
		tiered bool
		want   map[string]string
	}{
		"burstable":           {memoryPod("100Mi", "200Mi", false), false, map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "199229440"}},
		"burstable tiered":    {memoryPod("100Mi", "200Mi", false), true, map[string]string{"memory.low": "104857600", "memory.high": "199229440"}},
		"no limit":            {memoryPod("100Mi", "", false), true, map[string]string{"memory.low": "104857600", "memory.high": "954204160"}},
		"guaranteed":          {memoryPod("100Mi", "100Mi", true), false, map[string]string{"memory.min": "0", "memory.low": "0"}},
		"guaranteed tiered":   {memoryPod("100Mi", "100Mi", true), true, map[string]string{"memory.min": "104857600"}},
		"best effort":         {memoryPod("", "", false), true, map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "943718400"}},
		"more than there is":  {memoryPod("2000Mi", "", false), true, map[string]string{"memory.low": "2097152000"}},
		"a page is not split": {memoryPod("0", "10000", false), true, map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "8192"}},
		"limit of the pod":    {leveled, true, map[string]string{"memory.low": "104857600"}},
	} {
		n := node
		n.MemoryQoS = &QoS{Enabled: true, Throttle: 0.9, Tiered: tt.tiered}
		if got := linuxResources(tt.pod, &tt.pod.Spec.Containers[0], n).Unified; !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, not %v", name, got, tt.want)
		}
		high := cmp.Or(tt.want["memory.high"], "max")
		if got := ContainerUpdate(tt.pod, &tt.pod.Spec.Containers[0], n).Unified["memory.high"]; got != high {
			t.Errorf("%s: a resize sets memory.high %q, not %q", name, got, high)
		}
		for _, q := range []QoS{{Enabled: true, Tiered: tt.tiered}, {Throttle: 0.9, Tiered: tt.tiered}} { // nothing is throttled
			n.MemoryQoS = &q
			if high, is := linuxResources(tt.pod, &tt.pod.Spec.Containers[0], n).Unified["memory.high"]; is {
				t.Errorf("%s: with %+v a new container gets memory.high %q", name, q, high)
			}
			if got := ContainerUpdate(tt.pod, &tt.pod.Spec.Containers[0], n).Unified["memory.high"]; got != "max" {
				t.Errorf("%s: with %+v a resize sets memory.high %q", name, q, got)
			}
		}
		n.MemoryQoS = &QoS{Throttle: 0.9, Tiered: tt.tiered}
		if got := linuxResources(tt.pod, &tt.pod.Spec.Containers[0], n).Unified; len(got) > 0 {
			t.Errorf("%s: without the feature %v", name, got)
		}
		n.MemoryQoS = nil
		if got := ContainerUpdate(tt.pod, &tt.pod.Spec.Containers[0], n).Unified; len(got) > 0 {
			t.Errorf("%s: on cgroup v1 %v", name, got)
		}
	}
}

// TestSwap checks which pods get swap, and how much they get (KEP-2400).
func TestSwap(t *testing.T) {
	critical := memoryPod("1Gi", "", false)
	critical.Spec.Priority = new(int32(2_000_000_000))
	static := memoryPod("1Gi", "", false)
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	applied, classed := memoryPod("1Gi", "", false), memoryPod("1Gi", "", false)
	applied.Annotations = map[string]string{"kubernetes.io/config.source": "local"}
	classed.Annotations, classed.Spec.Priority = applied.Annotations, critical.Spec.Priority
	for name, tt := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"burstable":            {memoryPod("1Gi", "2Gi", false), "536870912"},
		"without a limit":      {memoryPod("1Gi", "", false), "536870912"},
		"request is limit":     {memoryPod("1Gi", "1Gi", false), "0"},
		"guaranteed":           {memoryPod("1Gi", "1Gi", true), "0"},
		"best effort":          {memoryPod("", "", false), "0"},
		"limit only, no ask":   {memoryPod("", "1Gi", false), "0"},
		"more than the memory": {memoryPod("9Gi", "", false), "0"},
		"critical":             {critical, "0"},
		"static":               {static, "0"},
		"applied":              {applied, "536870912"},
		"applied, critical":    {classed, "0"},
	} {
		n := Node{SwapCgroup: 2, MemoryBytes: 4 << 30, SwapBytes: 2 << 30}
		if got := linuxResources(tt.pod, &tt.pod.Spec.Containers[0], n).Unified["memory.swap.max"]; got != tt.want {
			t.Errorf("%s: %s, not %s", name, got, tt.want)
		}
		n.SwapBytes = 0 // the swap behaviour is NoSwap
		if got := linuxResources(tt.pod, &tt.pod.Spec.Containers[0], n).Unified["memory.swap.max"]; got != "0" {
			t.Errorf("%s: %s with NoSwap", name, got)
		}
	}
}

// TestExclusive checks that neither a container with exclusive CPUs nor its pod has a CPU quota.
func TestExclusive(t *testing.T) {
	pod := memoryPod("1Gi", "1Gi", true)
	pod.Spec.Containers = append(pod.Spec.Containers, *pod.Spec.Containers[0].DeepCopy())
	pod.Spec.Containers[1].Name = "d"
	n := Node{Exclusive: func(_ types.UID, name string) bool { return name == "c" }}
	if c, d := linuxResources(pod, &pod.Spec.Containers[0], n), linuxResources(pod, &pod.Spec.Containers[1], n); c.CpuQuota != -1 ||
		d.CpuQuota != 100_000 {
		t.Errorf("quotas %d, %d", c.CpuQuota, d.CpuQuota)
	}
	if got := PodLevel(pod, n); got.Milli != 0 {
		t.Errorf("the pod's CPU limit is %d", got.Milli)
	}
	if got := PodLevel(pod, Node{}); got.Milli != 2000 {
		t.Errorf("the CPU limit without exclusive CPUs is %d", got.Milli)
	}
}
