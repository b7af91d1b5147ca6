package translate

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
)

// swapLimit returns the swap limit of a container in bytes (KEP-2400). Only a container of a burstable pod that is not
// critical gets swap, and only if its memory request is set and differs from its memory limit. The container's share
// of the swap is its memory request divided by the node's memory.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2400-node-swap
func swapLimit(pod *v1.Pod, ctr *v1.Container, n Node) int64 {
	request, limit := ctr.Resources.Requests.Memory(), ctr.Resources.Limits.Memory()
	critical := demand.IsCritical(pod)
	if pod.Annotations[keys.ConfigSource] == keys.SourceLocal { // a pod applied by a user is not a static pod
		critical = demand.HasSystemPriority(pod)
	}
	none := critical || demand.Class(pod) != v1.PodQOSBurstable || request.IsZero() || request.Cmp(*limit) == 0
	if none || n.MemoryBytes <= 0 || request.Value() > n.MemoryBytes {
		return 0
	}
	return int64(float64(request.Value()) / float64(n.MemoryBytes) * float64(n.SwapBytes))
}
