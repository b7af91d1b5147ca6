package pods

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// finalEnd returns the end of a pod of the API server whose phase is terminal, and nil for any other pod. A
// terminal phase is final (KEP-3329), whether it comes from the API server or from this node's store. The pod
// never runs again, even if its containers were removed, or if the clock was set back to a time before its
// deadline. The end of a pod from another source is computed from its containers each time, as a restarted
// kubelet does. The caller holds mu.
func (p *Pods) finalEnd(d desired.Pod) *plan.End {
	if d.Source != desired.API {
		return nil
	}
	for _, s := range []v1.PodStatus{d.Pod.Status, p.states[d.Pod.UID].status} {
		if isTerminal(s.Phase) {
			return &plan.End{Phase: s.Phase, Reason: s.Reason, Message: s.Message}
		}
	}
	return nil
}

func isTerminal(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }
