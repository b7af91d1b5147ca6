package admit

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/growthtest"
)

// TestGrowth checks that the time of an admission does not grow like the product of two numbers that the authors of pods choose: the ports
// or requests of two pods, or the requests of one pod and the number of other pods. Other decisions wait during this time.
func TestGrowth(t *testing.T) {
	n := Node{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
	onAddress := func(network, count int) func(*v1.Pod) {
		return func(p *v1.Pod) {
			ports := make([]v1.ContainerPort, count)
			for i := range ports {
				ports[i] = v1.ContainerPort{HostPort: 80, HostIP: fmt.Sprintf("10.%d.%d.%d", network, i/250, i%250)}
			}
			p.Spec.Containers[0].Ports = ports
		}
	}
	manyRequests := func(count int) func(*v1.Pod) {
		return func(p *v1.Pod) {
			list := v1.ResourceList{}
			for i := range count {
				list[v1.ResourceName(fmt.Sprint("hugepages-", i))] = resource.MustParse("1")
			}
			p.Spec.Containers[0].Resources.Requests = list
		}
	}
	others := func(count int, change func(*v1.Pod)) (list []*Holder) {
		for i := range count {
			list = append(list, NewHolder(pod(fmt.Sprint("other", i), change)))
		}
		return list
	}
	for name, c := range map[string]struct {
		size int
		do   func(size int) *Rejection
		want string
	}{
		"ports of two pods": {2000, func(size int) *Rejection {
			return Admit(NewHolder(pod("a", onAddress(1, size))), others(1, onAddress(2, size)), n)
		}, ""},
		"ports and pods": {1000, func(size int) *Rejection {
			return Admit(NewHolder(pod("a", onAddress(1, size))), others(size, onPort(80, "", "10.2.0.1")), n)
		}, ""},
		"requests and pods": {1000, func(size int) *Rejection {
			return Admit(NewHolder(pod("a", manyRequests(size))), others(size, asks("cpu", "0")), n)
		}, "OutOfhugepages-0"},
	} {
		t.Run(name, func(t *testing.T) {
			growthtest.Linear(t, c.size, func(size int) {
				reason := ""
				if r := c.do(size); r != nil {
					reason = r.Reason
				}
				if reason != c.want {
					t.Errorf("rejected with %q", reason)
				}
			})
		})
	}
}
