package translate

import (
	"fmt"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
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
			"init": {Resources: plan.Resources{Shares: 2, Memory: 1 << 30, MemoryRequest: plan.MemoryRequest(0, true)}},
			"side": {Resources: plan.Resources{Shares: 102, Milli: 2000, Memory: 1 << 30, MemoryRequest: plan.MemoryRequest(0, true)}, RestartResources: "cpu=100m/2,memory=0/1073741824"},
			"c":    {Resources: plan.Resources{Shares: 102, Milli: 200, Memory: 2 << 20, MemoryRequest: plan.MemoryRequest(1<<20, false)}},
		} {
			if got[name] != want {
				t.Errorf("%s: %+v, not %+v", name, got[name], want)
			}
		}
		cfg := ContainerUpdate(pod, &pod.Spec.Containers[0], Node{CPUPeriod: period})
		held := plan.FromCRI(cfg.CpuShares, cfg.CpuQuota, cfg.CpuPeriod, cfg.MemoryLimitInBytes)
		text := containerAnnotations(pod, &pod.Spec.Containers[0], Attempt{})[keys.MemoryRequest]
		held.MemoryRequest, _ = strconv.ParseInt(text, 10, 64)
		if held != got["c"].Resources {
			t.Errorf("the runtime is given %+v", held)
		}
	}
	if got, want := PodLevel(pod, Node{}), (plan.Resources{Shares: 204, Memory: 1 << 30, MemoryRequest: plan.MemoryRequest(1<<20, true)}); got != want {
		t.Errorf("the pod: %+v, not %+v", got, want)
	}
	pod.Spec.Overhead = quantities("memory", "16Mi", "cpu", "1")
	if whole, over := SandboxUpdate(pod, Node{}); whole.MemoryLimitInBytes != 1<<30 || over.MemoryLimitInBytes != 16<<20 || over.CpuShares != 1024 || over.CpuQuota != 100_000 {
		t.Errorf("the pod %+v, its overhead %+v", whole, over)
	}
}

// TestUnreportedResources checks that no resize of a container is overlooked: whenever two pods of the same class give a container
// other values, their Sizes differ too, so that the container is updated. The runtime reports only some of the values. The exception
// is oom_score_adj, which no runtime changes in a running container.
func TestUnreportedResources(t *testing.T) {
	var pods []*v1.Pod
	for _, whole := range []string{"", "64Mi", "96Mi"} {
		for _, request := range []string{"", "0", "16Mi", "32Mi"} {
			for _, limit := range []string{"", "32Mi", "64Mi"} {
				p := memoryPod(request, limit, false)
				if whole != "" {
					p.Spec.Resources = &v1.ResourceRequirements{Requests: quantities("memory", "64Mi"), Limits: quantities("memory", whole)}
				}
				pods = append(pods, p)
			}
		}
	}
	node := Node{OOMGroup: true, MemoryBytes: 4 << 30, SwapBytes: 2 << 30, Allocatable: quantities("memory", "3Gi"),
		MemoryQoS: &QoS{Enabled: true, Throttle: 0.9, Tiered: true}}
	values := func(p *v1.Pod, n Node) string {
		r := ContainerUpdate(p, &p.Spec.Containers[0], n)
		return fmt.Sprint(r.CpuShares, r.CpuQuota, r.CpuPeriod, r.MemoryLimitInBytes, r.MemorySwapLimitInBytes, r.Unified)
	}
	for _, node.SwapCgroup = range []int{0, 1, 2} {
		for _, a := range pods {
			for _, b := range pods {
				differ := values(a, node) != values(b, node)
				if demand.Class(a) == demand.Class(b) && differ && Sizes(a, node)["c"] == Sizes(b, node)["c"] {
					t.Errorf("overlooked: %s became %s", values(a, node), values(b, node))
				}
			}
		}
	}
}

// TestPodMemoryRequest checks that the resources of the pod as a whole contain its memory request with the overhead. The memory
// protection of the pod's cgroup, and of its QoS class, depend on this request.
func TestPodMemoryRequest(t *testing.T) {
	p := memoryPod("32Mi", "64Mi", false)
	was := PodLevel(p, Node{})
	p.Spec.Containers[0].Resources.Requests = quantities("memory", "48Mi")
	if is := PodLevel(p, Node{}); is == was || is.MemoryRequest != plan.MemoryRequest(48<<20, false) {
		t.Errorf("%+v became %+v", was, is)
	}
	p.Spec.Overhead = quantities("memory", "16Mi")
	if is := PodLevel(p, Node{}); is.MemoryRequest != plan.MemoryRequest(64<<20, false) {
		t.Errorf("with overhead: %+v", is)
	}
}
