package translate

import (
	"cmp"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// A QoS configures memory protection and throttling of containers on cgroup v2 (KEP-2570).
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2570-memory-qos
type QoS struct {
	Enabled bool // the feature gate MemoryQoS
	// Throttle is the memoryThrottlingFactor: the fraction of the memory between request and limit (or the node's
	// memory) that a container may use before it is throttled. If it is 0, containers are not throttled.
	Throttle float64
	Tiered   bool // memoryReservationPolicy: TieredReservation
}

// memoryHigh is the usage from which the kernel throttles processes.
const memoryHigh = "memory.high"

// setProtection sets the memory protection of a container on a node with the given allocatable memory in bytes. Without
// throttling, it does not set memory.high, because a new cgroup has no limit.
func (q *QoS) setProtection(unified map[string]string, pod *v1.Pod, ctr *v1.Container, node int64) {
	if q == nil || !q.Enabled {
		return
	}
	request, limit := ctr.Resources.Requests.Memory().Value(), ctr.Resources.Limits.Memory().Value()
	switch {
	case request == 0 || !q.Tiered:
		unified["memory.min"], unified["memory.low"] = "0", "0"
	case demand.Class(pod) == v1.PodQOSGuaranteed:
		unified["memory.min"] = strconv.FormatInt(request, 10)
	default:
		unified["memory.low"] = strconv.FormatInt(request, 10)
	}
	if demand.ThrottledAsPod(pod, ctr) {
		return
	}
	if high := demand.MemoryHigh(request, cmp.Or(limit, node), q.Throttle); high > 0 {
		unified[memoryHigh] = strconv.FormatInt(high, 10)
	}
}
