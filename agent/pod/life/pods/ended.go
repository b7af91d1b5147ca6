package pods

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// ended is the verdict on a pod that has ended before: nil if it has not. A terminal
// phase of a pod of the API server is final (KEP-3329), whether the server shows it or
// this node found it out and stored it; so it never runs again, though its containers
// may be gone, or the clock be set back before its deadline. The end of any other pod
// is read off its containers anew, as by a kubelet that was restarted. The caller
// holds mu.
func (p *Pods) ended(d desired.Pod) *plan.End {
	if d.Source != desired.API {
		return nil
	}
	for _, s := range []v1.PodStatus{d.Pod.Status, p.states[d.Pod.UID].status} {
		if over(s.Phase) {
			return &plan.End{Phase: s.Phase, Reason: s.Reason, Message: s.Message}
		}
	}
	return nil
}

// over reports whether a phase is terminal.
func over(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }
