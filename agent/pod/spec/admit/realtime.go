package admit

import (
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/realtime"
)

// checkRealTime rejects a pod whose annotations request real time that the node does not allow or cannot fulfil.
func checkRealTime(h *Holder, others []*Holder, n Node) *Rejection {
	if !realtime.Requested(h.Pod) {
		return nil
	}
	pods := make([]*v1.Pod, len(others))
	for i, o := range others {
		pods[i] = o.Pod
	}
	var refusal *realtime.Refusal
	if _, err := realtime.Check(h.Pod, pods, n.RealTime); errors.As(err, &refusal) {
		return newRejection(refusal.Reason, "%s", refusal.Message)
	}
	return nil
}
