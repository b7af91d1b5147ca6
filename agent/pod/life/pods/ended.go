package pods

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// ended returns the end of a pod that ended before; nil: it did not. A terminal phase of a pod from the API server is
// final (KEP-3329), whether the server or this node's store has it: the pod never runs again, though its containers may
// be gone, or the clock may be set back before its deadline. The end of any other pod is computed from its containers
// each time, as by a kubelet that was restarted. The caller holds mu.
func (p *Pods) ended(d desired.Pod) *plan.End {
	if d.Source != desired.API {
		return nil
	}
	for _, s := range []v1.PodStatus{d.Pod.Status, p.states[d.Pod.UID].status} {
		if terminal(s.Phase) {
			return &plan.End{Phase: s.Phase, Reason: s.Reason, Message: s.Message}
		}
	}
	return nil
}

// terminal reports whether a phase is terminal.
func terminal(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }
