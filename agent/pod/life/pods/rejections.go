package pods

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/spec/admit"
)

// FindRejections returns for each pod of a manifest the reason and message with which the node would reject it at present, or "" if it
// would admit the pod. The node
// admits the pods in their order. A pod that the node already has is skipped, because its decision is known. A pod replaces the one
// with its name. FindRejections changes nothing and does not ask for devices and exclusive CPUs.
func (p *Pods) FindRejections(pods []*v1.Pod) []string {
	node := p.c.Node()
	node.ShuttingDown = p.c.ShuttingDown()
	p.mu.Lock()
	h := p.collectHolders("")
	p.mu.Unlock()
	isReplaced := func(old *admit.Holder) bool {
		return slices.ContainsFunc(pods, func(pod *v1.Pod) bool {
			return pod.Name == old.Pod.Name && pod.Namespace == old.Pod.Namespace && pod.UID != old.Pod.UID
		})
	}
	preemptible := slices.DeleteFunc(h.staying, isReplaced)
	others := slices.DeleteFunc(slices.Concat(h.coming, h.leaving), isReplaced)
	rejections := make([]string, len(pods))
	for i, pod := range pods {
		if _, ok := p.c.Desired.Get(pod.UID); ok {
			continue
		}
		holder := admit.NewHolder(pod)
		r := admit.Admit(holder, slices.Concat(preemptible, others), node)
		if r.OfResources() {
			if _, ok := admit.Preempt(holder, preemptible, others, node); ok {
				r = nil
			}
		}
		if r == nil {
			others = append(others, holder)
			continue
		}
		rejections[i] = r.Reason + ": " + r.Message
	}
	return rejections
}
