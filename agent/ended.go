package agent

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// ended is the verdict on a pod that has ended before: nil if it has not. A terminal
// phase of a pod of the API server is final (KEP-3329), whether the server shows it or
// this node found it out and stored it; so it never runs again, though its containers
// may be gone, or the clock be set back before its deadline. The end of any other pod
// is read off its containers anew, as by a kubelet that was restarted. The caller
// holds mu.
func (p *pods) ended(d desired.Pod) *plan.End {
	if d.Source != desired.API {
		return nil
	}
	for _, s := range []v1.PodStatus{d.Pod.Status, p.states[d.Pod.UID].status} {
		if s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed {
			return &plan.End{Phase: s.Phase, Reason: s.Reason, Message: s.Message}
		}
	}
	return nil
}
