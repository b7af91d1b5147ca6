package allocate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/sorting"
)

// AllocatedPart returns the part of a pod's spec that is allocated: the names and resources of its containers. The result shares
// memory with the spec.
func AllocatedPart(spec *v1.PodSpec) *v1.PodSpec {
	part := func(list []v1.Container) (out []v1.Container) {
		for i := range list {
			out = append(out, v1.Container{Name: list[i].Name, Resources: list[i].Resources})
		}
		return out
	}
	return &v1.PodSpec{Resources: spec.Resources, InitContainers: part(spec.InitContainers), Containers: part(spec.Containers)}
}

// Apply returns the pod with its allocated resources. If these are equal to the wanted resources, it returns
// the pod itself. Otherwise it returns a copy, which shares all unchanged parts with the pod.
func Apply(pod *v1.Pod, given *v1.PodSpec) *v1.Pod {
	if given == nil || ResourcesEqual(&pod.Spec, given) {
		return pod
	}
	out := *pod
	out.Spec.Resources = given.Resources
	out.Spec.InitContainers = applyToContainers(pod.Spec.InitContainers, given.InitContainers)
	out.Spec.Containers = applyToContainers(pod.Spec.Containers, given.Containers)
	return &out
}

func applyToContainers(list, given []v1.Container) []v1.Container {
	list = slices.Clone(list)
	for i := range list {
		if g := findContainer(given, list[i].Name); g != nil {
			list[i].Resources = g.Resources
		}
	}
	return list
}

// ResourcesEqual reports whether the allocated resources equal the wanted ones.
func ResourcesEqual(spec, given *v1.PodSpec) bool {
	return equality.Semantic.DeepEqual(spec.Resources, given.Resources) && sameResources(spec.InitContainers, given.InitContainers) &&
		sameResources(spec.Containers, given.Containers)
}

func sameResources(list, given []v1.Container) bool {
	return !slices.ContainsFunc(list, func(c v1.Container) bool {
		g := findContainer(given, c.Name)
		return g != nil && !equality.Semantic.DeepEqual(c.Resources, g.Resources)
	})
}

func findContainer(list []v1.Container, name string) *v1.Container {
	i := slices.IndexFunc(list, func(c v1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// A Refusal is the reason why a pod keeps its allocated resources. A deferred resize is decided on again later.
type Refusal struct {
	Reason         string // v1.PodReasonDeferred, v1.PodReasonInfeasible
	Message        string
	Detail         string // label for metrics if the resize is infeasible
	LacksResources bool   // the resize is deferred for lack of resources; for a critical pod, other pods are preempted
}

// Decide decides whether a pod may have its wanted resources while the other pods keep theirs. It returns nil
// if the pod may have them. The API server also rejects the resizes that Decide refuses as infeasible.
func Decide(wanted, allocated *v1.Pod, others []*admit.Holder, n admit.Node) *Refusal {
	infeasible := func(detail, message string) *Refusal {
		return &Refusal{Reason: v1.PodReasonInfeasible, Message: message, Detail: detail}
	}
	switch {
	case demand.Class(wanted) != demand.Class(allocated): // the cgroup's path depends on the QoS class
		return infeasible("qos_class", "Pod QOS Class may not change as a result of resizing")
	case removesLimit(&wanted.Spec, &allocated.Spec):
		return infeasible("limit_removed", "resource limits cannot be removed")
	case changesOtherResources(&wanted.Spec, &allocated.Spec):
		return infeasible("other_resources", "only cpu and memory resources are mutable")
	case n.HasSwap != nil && changesSwap(wanted, allocated, n):
		return infeasible("swap_limitation", "In-place resize of containers with swap is not supported.")
	}
	if demand.Class(wanted) == v1.PodQOSGuaranteed {
		if n.StaticCPU && resourceDiffers(wanted, allocated, v1.ResourceCPU) {
			return infeasible("guaranteed_pod_cpu_manager_static_policy",
				`Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`)
		}
		if n.StaticMemory && resourceDiffers(wanted, allocated, v1.ResourceMemory) {
			return infeasible("guaranteed_pod_memory_manager_static_policy",
				`Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`)
		}
	}
	if r := admit.Admit(admit.NewHolder(wanted), others, n); r != nil {
		return &Refusal{Reason: v1.PodReasonDeferred, Message: r.Message, LacksResources: r.OfResources()}
	}
	return nil
}

// changesSwap reports whether a resize would change the swap of a running container: another memory request of a container that may use
// swap, before or after the resize. A container that restarts for the resize gets its new swap by the restart.
func changesSwap(wanted, allocated *v1.Pod, n admit.Node) bool {
	return anyContainer(&wanted.Spec, &allocated.Spec, func(want, have *v1.Container) bool {
		if want.Resources.Requests.Memory().Value() == have.Resources.Requests.Memory().Value() {
			return false
		}
		for i := range have.ResizePolicy {
			if p := &have.ResizePolicy[i]; p.ResourceName == v1.ResourceMemory && p.RestartPolicy == v1.RestartContainer {
				return false
			}
		}
		return n.HasSwap(wanted, want) || n.HasSwap(allocated, have)
	})
}

// anyContainer reports whether a function returns true for any container of the wanted pod and the same container of the allocated one.
func anyContainer(wanted, allocated *v1.PodSpec, visit func(want, have *v1.Container) bool) bool {
	each := func(want, have []v1.Container) bool {
		for i := range want {
			if h := findContainer(have, want[i].Name); h != nil && visit(&want[i], h) {
				return true
			}
		}
		return false
	}
	return each(wanted.InitContainers, allocated.InitContainers) || each(wanted.Containers, allocated.Containers)
}

// anyResource reports whether a function returns true for the wanted and allocated resources of the pod as a whole, or
// of any of its containers.
func anyResource(wanted, allocated *v1.PodSpec, visit func(want, have v1.ResourceRequirements) bool) bool {
	of := func(r *v1.ResourceRequirements) v1.ResourceRequirements {
		if r == nil {
			return v1.ResourceRequirements{}
		}
		return *r
	}
	return visit(of(wanted.Resources), of(allocated.Resources)) ||
		anyContainer(wanted, allocated, func(want, have *v1.Container) bool { return visit(want.Resources, have.Resources) })
}

// resourceDiffers reports whether the wanted request or limit of a resource differs from the allocated one, for the pod or any
// container.
func resourceDiffers(wanted, allocated *v1.Pod, name v1.ResourceName) bool {
	return anyResource(&wanted.Spec, &allocated.Spec, func(want, have v1.ResourceRequirements) bool {
		request, limit := want.Requests[name], want.Limits[name]
		return request.Cmp(have.Requests[name]) != 0 || limit.Cmp(have.Limits[name]) != 0
	})
}

func removesLimit(wanted, allocated *v1.PodSpec) bool {
	return anyResource(wanted, allocated, func(want, have v1.ResourceRequirements) bool {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			now, before := want.Limits[name], have.Limits[name]
			if now.IsZero() && !before.IsZero() {
				return true
			}
		}
		return false
	})
}

func changesOtherResources(wanted, allocated *v1.PodSpec) bool {
	rest := func(l v1.ResourceList) v1.ResourceList {
		out := v1.ResourceList{}
		for name, q := range l {
			if name != v1.ResourceCPU && name != v1.ResourceMemory {
				out[name] = q
			}
		}
		return out
	}
	return anyResource(wanted, allocated, func(want, have v1.ResourceRequirements) bool {
		return !equality.Semantic.DeepEqual(rest(want.Requests), rest(have.Requests)) ||
			!equality.Semantic.DeepEqual(rest(want.Limits), rest(have.Limits)) ||
			!equality.Semantic.DeepEqual(want.Claims, have.Claims)
	})
}

// A WaitingResize is a pod with a resize that is deferred or not decided on yet.
type WaitingResize struct {
	Wanted, Allocated *v1.Pod
	Since             time.Time // when it began to wait; zero if it is new
}

// Sort sorts the pods for a decision. Pods whose requests do not grow come first. The other criteria are, in this
// order: the priority, whether the pod is guaranteed, and the time for which it has waited.
func Sort(list []WaitingResize) {
	rank := func(yes bool) int {
		if yes {
			return 0
		}
		return 1
	}
	since := func(w WaitingResize) time.Time { // a new waiter is the last
		if w.Since.IsZero() {
			return time.Unix(1<<40, 0)
		}
		return w.Since
	}
	sorting.By(list, func(a, b WaitingResize) int {
		return cmp.Or(
			cmp.Compare(rank(!requestsMore(a)), rank(!requestsMore(b))),
			cmp.Compare(priorityOf(b.Wanted), priorityOf(a.Wanted)),
			cmp.Compare(rank(demand.Class(a.Wanted) == v1.PodQOSGuaranteed), rank(demand.Class(b.Wanted) == v1.PodQOSGuaranteed)),
			since(a).Compare(since(b)),
			strings.Compare(string(a.Wanted.UID), string(b.Wanted.UID)))
	})
}

func requestsMore(w WaitingResize) bool {
	want, have := demand.Requests(w.Wanted), demand.Requests(w.Allocated)
	more := func(name v1.ResourceName) bool { q := want[name]; return q.Cmp(have[name]) > 0 }
	return more(v1.ResourceCPU) || more(v1.ResourceMemory)
}

func priorityOf(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// A Request is a requested change of one resource of a container.
type Request struct{ Resource, Requirement, Operation string }

// Requests returns the changes between two versions of a pod's spec, as a kubelet counts them.
func Requests(before, now *v1.PodSpec) (out []Request) {
	each := func(before, now []v1.Container) {
		for i := range now {
			b := findContainer(before, now[i].Name)
			if b == nil {
				continue
			}
			was, is := b.Resources, now[i].Resources
			for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
				for _, x := range []struct {
					what    string
					was, is resource.Quantity
				}{{"requests", was.Requests[name], is.Requests[name]}, {"limits", was.Limits[name], is.Limits[name]}} {
					if op := changeOperation(x.was, x.is); op != "" {
						out = append(out, Request{string(name), x.what, op})
					}
				}
			}
		}
	}
	each(before.InitContainers, now.InitContainers)
	each(before.Containers, now.Containers)
	return out
}

func changeOperation(was, is resource.Quantity) string {
	switch c := is.Cmp(was); {
	case c == 0:
		return ""
	case is.IsZero():
		return "remove"
	case was.IsZero():
		return "add"
	case c < 0:
		return "decrease"
	}
	return "increase"
}
