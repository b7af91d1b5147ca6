package node

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

func (n *Node) ownsCondition(t v1.NodeConditionType) bool {
	switch t {
	case v1.NodeReady, v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure:
		return true
	}
	return slices.Contains(n.OwnConditions, t)
}

// newConditions returns the same conditions as a kubelet, in the same order, with the same reasons and messages. See
// https://kubernetes.io/docs/reference/node/node-status/#condition.
func newConditions(f Facts) []v1.NodeCondition {
	pressure := func(t v1.NodeConditionType, found bool, yes, yesMessage, no, noMessage string) v1.NodeCondition {
		if found {
			return v1.NodeCondition{Type: t, Status: v1.ConditionTrue, Reason: "KubeletHas" + yes, Message: "kubelet has " + yesMessage}
		}
		return v1.NodeCondition{Type: t, Status: v1.ConditionFalse, Reason: "KubeletHas" + no, Message: "kubelet has " + noMessage}
	}
	const readyMessage = "kubelet is posting ready status"
	ready := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: readyMessage}
	if len(f.NotReady) > 0 {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, "KubeletNotReady", strings.Join(f.NotReady, ", ")
	}
	return []v1.NodeCondition{
		pressure(v1.NodeMemoryPressure, f.MemoryPressure,
			"InsufficientMemory", "insufficient memory available", "SufficientMemory", "sufficient memory available"),
		pressure(v1.NodeDiskPressure, f.DiskPressure, "DiskPressure", "disk pressure", "NoDiskPressure", "no disk pressure"),
		pressure(v1.NodePIDPressure, f.PIDPressure,
			"InsufficientPID", "insufficient PID available", "SufficientPID", "sufficient PID available"),
		ready,
	}
}
