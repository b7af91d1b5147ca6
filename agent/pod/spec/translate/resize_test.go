package translate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/pod/plan"
)

func quantities(kv ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[v1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

// TestSizes checks that Sizes returns the same resources as the runtime gets. The text of a resource that requires a restart does not
// depend on the notation in the pod: 0.1 and 100m have the same text.
func TestSizes(t *testing.T) {
	restart := func(names ...v1.ResourceName) (out []v1.ContainerResizePolicy) {
		for _, n := range names {
			out = append(out, v1.ContainerResizePolicy{ResourceName: n, RestartPolicy: v1.RestartContainer})
		}
		return append(out, v1.ContainerResizePolicy{ResourceName: "x", RestartPolicy: v1.NotRequired})
	}
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{Spec: v1.PodSpec{
		Resources: &v1.ResourceRequirements{Limits: quantities("memory", "1Gi")},
		InitContainers: []v1.Container{
			{Name: "init", ResizePolicy: restart("cpu")},
			{Name: "side", RestartPolicy: &always, ResizePolicy: restart("cpu", "memory"), Resources: v1.ResourceRequirements{Requests: quantities("cpu", "0.1"), Limits: quantities("cpu", "2")}},
		},
		Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: quantities("cpu", "100m", "memory", "1Mi"), Limits: quantities("cpu", "200m", "memory", "2Mi")}}},
	}}
	for _, period := range []int64{0, 20_000} {
		got := Sizes(pod, Node{CPUPeriod: period})
		for name, want := range map[string]plan.Size{
			"init": {Resources: plan.Resources{Shares: 2, Memory: 1 << 30}},
			"side": {Resources: plan.Resources{Shares: 102, Milli: 2000, Memory: 1 << 30}, RestartResources: "cpu=100m/2,memory=0/1073741824"},
			"c":    {Resources: plan.Resources{Shares: 102, Milli: 200, Memory: 2 << 20}},
		} {
			if got[name] != want {
				t.Errorf("%s: %+v, not %+v", name, got[name], want)
			}
		}
		cfg := ContainerUpdate(pod, &pod.Spec.Containers[0], Node{CPUPeriod: period})
		if held := plan.FromCRI(cfg.CpuShares, cfg.CpuQuota, cfg.CpuPeriod, cfg.MemoryLimitInBytes); held != got["c"].Resources {
			t.Errorf("the runtime is given %+v", held)
		}
	}
	if got, want := PodLevel(pod, Node{}), (plan.Resources{Shares: 204, Memory: 1 << 30}); got != want {
		t.Errorf("the pod: %+v, not %+v", got, want)
	}
	pod.Spec.Overhead = quantities("memory", "16Mi", "cpu", "1")
	if whole, over := SandboxUpdate(pod, Node{}); whole.MemoryLimitInBytes != 1<<30 || over.MemoryLimitInBytes != 16<<20 || over.CpuShares != 1024 || over.CpuQuota != 100_000 {
		t.Errorf("the pod %+v, its overhead %+v", whole, over)
	}
}
