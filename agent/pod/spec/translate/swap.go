package translate

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
)

// HasSwap reports whether a container may use the node's swap (KEP-2400). Its pod must be burstable and not critical. Its memory
// request must be set and differ from its memory limit.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2400-node-swap
func (n *Node) HasSwap(pod *v1.Pod, ctr *v1.Container) bool {
	request, limit := ctr.Resources.Requests.Memory(), ctr.Resources.Limits.Memory()
	critical := demand.IsCritical(pod)
	if pod.Annotations[keys.ConfigSource] == keys.SourceLocal { // a pod applied by a user is not a static pod
		critical = demand.HasSystemPriority(pod)
	}
	return n.SwapCgroup == 2 && n.SwapBytes > 0 && !critical && demand.Class(pod) == v1.PodQOSBurstable && !request.IsZero() &&
		request.Cmp(*limit) != 0
}

// swapLimit returns the swap limit of a container in bytes. The container's share of the swap is its memory request divided by the node's
// memory. Without swap, the limit is 0.
func swapLimit(pod *v1.Pod, ctr *v1.Container, n Node) int64 {
	request := ctr.Resources.Requests.Memory()
	if !n.HasSwap(pod, ctr) || n.MemoryBytes <= 0 || request.Value() > n.MemoryBytes {
		return 0
	}
	return int64(float64(request.Value()) / float64(n.MemoryBytes) * float64(n.SwapBytes))
}
