package admit

import (
	"cmp"
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// Critical reports whether other pods are preempted for this pod.
func Critical(pod *v1.Pod) bool { return demand.IsCritical(pod) }

// mayPreempt reports whether the first pod may be preempted so that the second pod, which is critical, can run. If
// both pods are critical, only the pod with the lower priority may be preempted.
func mayPreempt(pod, to *v1.Pod) bool {
	if Critical(to) && !Critical(pod) {
		return true
	}
	return pod.Spec.Priority != nil && to.Spec.Priority != nil && *pod.Spec.Priority < *to.Spec.Priority
}

// Victims contains the pods that must end so that a critical pod can run.
type Victims struct {
	Pods   []*Holder       // empty if enough resources are free already
	Signal v1.ResourceName // the first resource of which too little is free for the critical pod; for the metric
}

// Preempt selects the pods that must end so that a critical pod can run. The critical pod must have been rejected only
// for lack of resources. It selects as few guaranteed pods as possible, then as few burstable pods, and then as few
// best-effort pods. In each class it prefers pods that free little more than is needed. The parameter beside is a list
// of other pods that use resources but are never selected. It returns false if the pod is not critical, or if ending
// all pods that may be preempted would not free enough.
func Preempt(pod *Holder, others, beside []*Holder, n Node) (Victims, bool) {
	if !Critical(pod.Pod) {
		return Victims{}, false
	}
	need := findShortages(pod, slices.Concat(others, beside), n)
	if len(need) == 0 {
		return Victims{}, true
	}
	kinds := map[v1.PodQOSClass][]*Holder{}
	var all []*Holder
	for _, o := range others {
		if o.Pod.UID != pod.Pod.UID && mayPreempt(o.Pod, pod.Pod) {
			class := demand.Class(o.Pod)
			kinds[class], all = append(kinds[class], o), append(all, o)
		}
	}
	want := shortfall{}
	for _, s := range need {
		want[s.name] = s.requested + s.used - s.capacity
	}
	if len(want.remainingAfter(all)) > 0 {
		return Victims{}, false
	}
	effort, burst, sure := kinds[v1.PodQOSBestEffort], kinds[v1.PodQOSBurstable], kinds[v1.PodQOSGuaranteed]
	sure = want.remainingAfter(slices.Concat(effort, burst)).selectPods(sure)
	burst = want.remainingAfter(slices.Concat(effort, sure)).selectPods(burst)
	effort = want.remainingAfter(slices.Concat(burst, sure)).selectPods(effort)
	return Victims{Pods: want.dropUnneeded(slices.Concat(sure, burst, effort)), Signal: need[0].name}, true
}

// shortfall contains the amount of each resource that must be freed. All amounts are positive.
type shortfall map[v1.ResourceName]int64

func (h *Holder) heldAmount(name v1.ResourceName) int64 { return amountOf(name, h.requests[name]) }

// remainingAfter returns the amounts that must still be freed after the given pods have ended.
func (w shortfall) remainingAfter(pods []*Holder) shortfall {
	left := shortfall{}
	for name, q := range w {
		for _, h := range pods {
			q -= h.heldAmount(name)
		}
		if q > 0 {
			left[name] = q
		}
	}
	return left
}

// selectPods repeatedly selects the pod with the smallest distance, until enough is freed. All pods together
// must be able to free enough.
func (w shortfall) selectPods(pods []*Holder) (chosen []*Holder) {
	pods = slices.Clone(pods)
	for len(w) > 0 && len(pods) > 0 {
		best := slices.MinFunc(pods, func(a, b *Holder) int {
			return cmp.Or(cmp.Compare(w.distanceAfter(a), w.distanceAfter(b)),
				cmp.Compare(a.heldAmount(v1.ResourceMemory), b.heldAmount(v1.ResourceMemory)),
				cmp.Compare(a.heldAmount(v1.ResourceCPU), b.heldAmount(v1.ResourceCPU)), cmp.Compare(a.Pod.UID, b.Pod.UID))
		})
		chosen, w = append(chosen, best), w.remainingAfter([]*Holder{best})
		pods = slices.DeleteFunc(pods, func(h *Holder) bool { return h == best })
	}
	return chosen
}

// distanceAfter measures how much must still be freed after a pod has ended: the sum of the squares of the remaining
// fractions of all resources.
func (w shortfall) distanceAfter(h *Holder) (d float64) {
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if left := w[name] - h.heldAmount(name); left > 0 {
			d += math.Pow(float64(left)/float64(w[name]), 2)
		}
	}
	return d
}

// dropUnneeded removes pods from the selection that are not needed, starting with the first.
func (w shortfall) dropUnneeded(chosen []*Holder) []*Holder {
	for i := 0; i < len(chosen); {
		if rest := slices.Delete(slices.Clone(chosen), i, i+1); len(w.remainingAfter(rest)) == 0 {
			chosen = rest
		} else {
			i++
		}
	}
	return chosen
}
