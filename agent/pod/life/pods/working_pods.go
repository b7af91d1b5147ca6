package pods

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/desired"
)

// Working returns the number of pods by the values of a kubelet's labels. The label lifecycle is sync, terminating or
// terminated. The label config is desired, orphan or runtime_only. The label static is true, empty or unknown. An
// orphan was removed from its source, or by force from the API server, and has not ended. A pod with the value
// runtime_only is only in the runtime and has no known source.
func (p *Pods) Working() map[[3]string]int {
	type ending struct {
		uid types.UID
		key [3]string
	}
	out, known, removed := map[[3]string]int{}, map[types.UID]bool{}, []ending(nil)
	p.mu.Lock()
	p.c.Desired.ForEach(func(d desired.Pod) {
		uid := d.Pod.UID
		known[uid] = true
		key := [3]string{p.lifecycleLabel(d), "desired", "true"}
		if d.Source == desired.API {
			key[2] = ""
		}
		if d.Deleting {
			removed = append(removed, ending{uid, key})
		} else {
			out[key]++
		}
	})
	p.mu.Unlock()
	for _, e := range removed {
		if e.key[2] == "true" || p.outbox != nil && !p.outbox.Has(e.uid) {
			e.key[1] = "orphan"
		}
		out[e.key]++
	}
	for _, uid := range p.c.InRuntime() {
		if !known[uid] {
			out[[3]string{"terminating", "runtime_only", "unknown"}]++
		}
	}
	return out
}

// lifecycleLabel returns the value of the label lifecycle of a pod. The caller holds mu.
func (p *Pods) lifecycleLabel(d desired.Pod) string {
	s, v := p.states[d.Pod.UID], p.verdicts[d.Pod.UID]
	switch {
	case isTerminal(s.status.Phase) || d.Pod.Status.Phase == v1.PodSucceeded || d.Pod.Status.Phase == v1.PodFailed:
		return "terminated"
	case d.Deleting || v.end != nil:
		return "terminating"
	}
	return "sync"
}
