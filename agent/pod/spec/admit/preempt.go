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

// yields reports whether a pod may be preempted for another pod. For two pods it is never true in both directions, so
// that there are no cycles.
func yields(pod, to *v1.Pod) bool {
	if Critical(to) && !Critical(pod) {
		return true
	}
	return pod.Spec.Priority != nil && to.Spec.Priority != nil && *pod.Spec.Priority < *to.Spec.Priority
}

// A Sacrifice contains the pods that must end so that a critical pod can run.
type Sacrifice struct {
	Pods   []*Holder       // empty if enough resources are free already
	Signal v1.ResourceName // the first resource of which too little is free for the critical pod; for the metric
}

// Preempt selects the pods that must end so that a critical pod can run which was rejected only for lack of
// resources. It selects as few guaranteed pods as possible, then as few burstable and then best-effort ones. Among
// these it prefers the pods that free the least beyond the need. Pods in beside are never selected. It returns false
// if the pod is not critical, or if ending all pods that yield would not free enough.
func Preempt(pod *Holder, others, beside []*Holder, n Node) (Sacrifice, bool) {
	need := shortages(pod, slices.Concat(others, beside), n)
	if !Critical(pod.Pod) {
		return Sacrifice{}, false
	}
	if len(need) == 0 {
		return Sacrifice{}, true
	}
	kinds := map[v1.PodQOSClass][]*Holder{}
	var all []*Holder
	for _, o := range others {
		if o.Pod.UID != pod.Pod.UID && yields(o.Pod, pod.Pod) {
			class := demand.Class(o.Pod)
			kinds[class], all = append(kinds[class], o), append(all, o)
		}
	}
	want := wants{}
	for _, s := range need {
		want[s.name] = s.asked + s.taken - s.have
	}
	if len(want.without(all)) > 0 {
		return Sacrifice{}, false
	}
	effort, burst, sure := kinds[v1.PodQOSBestEffort], kinds[v1.PodQOSBurstable], kinds[v1.PodQOSGuaranteed]
	sure = want.without(slices.Concat(effort, burst)).choose(sure)
	burst = want.without(slices.Concat(effort, sure)).choose(burst)
	effort = want.without(slices.Concat(burst, sure)).choose(effort)
	return Sacrifice{Pods: want.spare(slices.Concat(sure, burst, effort)), Signal: need[0].name}, true
}

// wants contains the amount of each resource that must be freed. All amounts are positive.
type wants map[v1.ResourceName]int64

func (h *Holder) holds(name v1.ResourceName) int64 { return figure(name, h.requests[name]) }

// without returns the amounts that must still be freed after the given pods have ended.
func (w wants) without(pods []*Holder) wants {
	left := wants{}
	for name, q := range w {
		for _, h := range pods {
			q -= h.holds(name)
		}
		if q > 0 {
			left[name] = q
		}
	}
	return left
}

// choose repeatedly selects the pod with the smallest distance, until enough is freed. The pods together must be able
// to free enough.
func (w wants) choose(pods []*Holder) (chosen []*Holder) {
	pods = slices.Clone(pods)
	for len(w) > 0 && len(pods) > 0 {
		best := slices.MinFunc(pods, func(a, b *Holder) int {
			return cmp.Or(cmp.Compare(w.distance(a), w.distance(b)), cmp.Compare(a.holds(v1.ResourceMemory), b.holds(v1.ResourceMemory)),
				cmp.Compare(a.holds(v1.ResourceCPU), b.holds(v1.ResourceCPU)), cmp.Compare(a.Pod.UID, b.Pod.UID))
		})
		chosen, w = append(chosen, best), w.without([]*Holder{best})
		pods = slices.DeleteFunc(pods, func(h *Holder) bool { return h == best })
	}
	return chosen
}

// distance measures how much must still be freed after a pod has ended: the sum of the squares of the remaining
// fractions of all resources.
func (w wants) distance(h *Holder) (d float64) {
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if left := w[name] - h.holds(name); left > 0 {
			d += math.Pow(float64(left)/float64(w[name]), 2)
		}
	}
	return d
}

// spare removes pods from the selection that are not needed, starting with the first.
func (w wants) spare(chosen []*Holder) []*Holder {
	for i := 0; i < len(chosen); {
		if rest := slices.Delete(slices.Clone(chosen), i, i+1); len(w.without(rest)) == 0 {
			chosen = rest
		} else {
			i++
		}
	}
	return chosen
}
